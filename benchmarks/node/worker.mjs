// One contestant on Node: reads a command a line, as JSON, and answers each with a line. See ../worker.py, its twin.

import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'

const { version, contestants } = await import(`./${process.argv[2]}.mjs`)
const streams = new Map()
const ignore = () => {}

const commands = {
  names: () => ({
    version,
    contestants: Object.entries(contestants).map(([name, { gives, dialects }]) => ({ name, gives, dialects })),
    clients: [],
  }),

  async check({ contestant, stream, size }) {
    const { run, hear } = contestants[contestant]
    const heard = {}
    await run(chunksOf(stream, size), (item) => {
      for (const [key, piece] of hear(item)) if (piece) heard[key] = (heard[key] ?? '') + piece
    })
    return { heard }
  },

  async time({ contestant, stream, size, least }) {
    const { run } = contestants[contestant]
    const chunks = chunksOf(stream, size)
    globalThis.gc()
    let passes = 0
    let taken = 0
    const before = process.cpuUsage()
    while (!passes || taken < least) {
      await run(chunks, ignore)
      const { user, system } = process.cpuUsage(before)
      taken = (user + system) / 1e6
      passes += 1
    }
    return { seconds: taken / passes }
  },
}

function chunksOf(stream, size) {
  const key = `${stream} ${size}`
  if (!streams.has(key)) streams.set(key, cut(stream, size))
  return streams.get(key)
}

function cut(stream, size) {
  const body = readFileSync(`${stream}.sse`)
  const { blank } = JSON.parse(readFileSync(`${stream}.json`, 'utf8'))
  const chunks = []
  for (let at = 0, end; at < body.length; at = end) {
    end = size ? at + size : body.indexOf(blank, at) + blank.length
    chunks.push(new Uint8Array(body.subarray(at, end)))
  }
  return chunks
}

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line)
  let answer
  try {
    answer = await commands[command.do](command)
  } catch (error) {
    answer = { error: String(error) }
  }
  process.stdout.write(JSON.stringify(answer) + '\n')
}
