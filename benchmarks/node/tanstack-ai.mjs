// TanStack AI with its adapter for Chat Completions: the events that `chat` gives.

import { chat } from '@tanstack/ai'
import { createOpenaiChatCompletions } from '@tanstack/ai-openai'
import { BASE_URL, PROMPT, replay, versionOf } from './replay.mjs'

export const version = versionOf('@tanstack/ai')

async function run(chunks, take) {
  const adapter = createOpenaiChatCompletions('gpt-4o-mini', 'none', { baseURL: BASE_URL, fetch: replay(chunks) })
  for await (const event of chat({ adapter, messages: [{ role: 'user', content: PROMPT }] })) take(event)
}

function* hear(event) {
  if (event.type === 'TEXT_MESSAGE_CONTENT') yield ['text 0', event.delta]
  if (event.type === 'RUN_ERROR') throw new Error(event.message)
}

export const contestants = {
  'TanStack AI, chat': { gives: 'objects', dialects: ['openai-chat'], run, hear },
}
