// Vercel's AI SDK with its OpenAI-compatible provider: the parts that `streamText` gives.

import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { streamText } from 'ai'
import { BASE_URL, PROMPT, replay, versionOf } from './replay.mjs'

export const version = versionOf('ai')

async function run(chunks, take) {
  const provider = createOpenAICompatible({ name: 'bench', baseURL: BASE_URL, fetch: replay(chunks) })
  const { stream } = streamText({ model: provider('any'), prompt: PROMPT })
  for await (const part of stream) take(part)
}

function* hear(part) {
  if (part.type === 'text-delta') yield ['text 0', part.text]
  if (part.type === 'error') throw part.error
}

export const contestants = {
  "Vercel's ai, streamText": { gives: 'objects', dialects: ['openai-chat'], run, hear },
}
