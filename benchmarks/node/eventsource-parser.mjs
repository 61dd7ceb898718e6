// eventsource-parser: server-sent events from text; the JSON is for the caller, so JSON.parse.

import { createParser } from 'eventsource-parser'
import { versionOf } from './replay.mjs'

export const version = versionOf('eventsource-parser')

async function run(chunks, take) {
  const decoder = new TextDecoder()
  const parser = createParser({
    onEvent({ data }) {
      if (data !== '[DONE]') take(JSON.parse(data))
    },
  })
  for (const chunk of chunks) parser.feed(decoder.decode(chunk, { stream: true }))
}

function* hear({ choices }) {
  for (const { index, delta } of choices) yield [`text ${index}`, delta.content]
}

export const contestants = {
  'eventsource-parser, JSON.parse': { gives: 'payloads', dialects: ['openai-chat'], run, hear },
}
