// A `fetch` that answers every request with the chunks given, and the version of a package.

import { readFileSync } from 'node:fs'

export const BASE_URL = 'http://localhost/v1'
export const PROMPT = 'Hello?'

export function replay(chunks) {
  return async () => {
    let next = 0
    const body = new ReadableStream({
      pull(controller) {
        if (next < chunks.length) controller.enqueue(chunks[next++])
        else controller.close()
      },
    })
    return new Response(body, { headers: { 'Content-Type': 'text/event-stream' } })
  }
}

export function versionOf(name) {
  return JSON.parse(readFileSync(new URL(`./node_modules/${name}/package.json`, import.meta.url), 'utf8')).version
}
