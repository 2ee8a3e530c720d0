// A small server that answers as the daemon does, from a box that is made up. For tests of the page, and to work on it:
// node test/server.mjs [mockup|crowd|idle] [port]

import { createReadStream, existsSync } from 'node:fs'
import { createServer } from 'node:http'
import { extname, join, normalize } from 'node:path'
import { fileURLToPath } from 'node:url'
import * as boxes from './box.mjs'

const dist = process.env.WEFT_PAGE_DIST ?? fileURLToPath(new URL('../../internal/web/dist', import.meta.url))
const types = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml' }
export const csp = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

/** frame is a piece of a log as package shepherd writes it, without its checksum. */
function frame(stream, text, offset) {
  const bytes = Buffer.from(text)
  const head = Buffer.alloc(32)
  head.write('wfl1', 0)
  head.writeUInt8(stream, 4)
  head.writeUInt32LE(bytes.length, 8)
  head.writeBigUInt64LE(BigInt(Date.now()) * 1_000_000n, 16)
  head.writeBigUInt64LE(BigInt(offset), 24)
  return Buffer.concat([head, bytes])
}

/** Fixture is a daemon of a test. */
export class Fixture {
  token = 'secret'
  refuse = false // whatever is asked: 401
  asked = [] // "METHOD /path" of every question
  #streams = new Set()
  #port = 0

  constructor(box) {
    this.box = box
  }

  get url() {
    return `http://127.0.0.1:${this.#port}`
  }

  async start(port = this.#port) {
    this.server = createServer((q, a) => this.#answer(q, a))
    await new Promise((done) => this.server.listen(port, '127.0.0.1', done))
    this.#port = this.server.address().port
    this.beat = setInterval(() => this.push(), 1000)
    return this
  }

  /** die ends as a killed daemon does: every connection at once. */
  async die() {
    clearInterval(this.beat)
    this.#streams.clear()
    this.server.closeAllConnections()
    await new Promise((done) => this.server.close(done))
  }

  /** push sends the state to who follows. */
  push() {
    const { box } = this
    const state = { status: boxes.status(box), jobs: box.jobs, gpus: box.gpus }
    for (const s of this.#streams) s.write(`event: state\ndata: ${JSON.stringify(state)}\n\n`)
  }

  event(e) {
    const seq = (this.box.events.at(-1)?.seq ?? 0) + 1
    const full = { seq, time: new Date().toISOString(), text: '', ...e }
    this.box.events.push(full)
    for (const s of this.#streams) s.write(`event: event\ndata: ${JSON.stringify(full)}\n\n`)
  }

  #answer(q, a) {
    const url = new URL(q.url, this.url)
    this.asked.push(`${q.method} ${q.url}`)
    const json = (status, body) => a.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(body))
    const refuse = (status, message, fix) => json(status, { error: { kind: 'x', code: 'x', message, fix } })
    if (url.searchParams.get('token') === this.token) return a.writeHead(302, { 'Set-Cookie': `weft=${this.token}; HttpOnly; SameSite=Strict; Path=/`, Location: '/' }).end()
    if (this.refuse || !q.headers.cookie?.includes(`weft=${this.token}`)) return refuse(401, 'no token')
    if (!url.pathname.startsWith('/v1/')) return this.#file(url.pathname, a)
    const [, id, rest] = /^\/v1\/(?:jobs|gpus)\/(\d+)\/?(\w*)$/.exec(url.pathname) ?? []
    const { box } = this
    switch (`${q.method} ${rest ? `:${rest}` : url.pathname}`) {
      case 'GET /v1/stream':
        a.writeHead(200, { 'Content-Type': 'text/event-stream' })
        this.#streams.add(a)
        q.on('close', () => this.#streams.delete(a))
        return this.push()
      case 'GET /v1/history':
        return json(200, boxes.history(box, Number(url.searchParams.get('minutes'))))
      case 'GET /v1/jobs':
        return json(200, { schema: 1, jobs: [...box.past, ...box.jobs] })
      case 'GET /v1/events':
        return a.writeHead(200, { 'Content-Type': 'application/x-ndjson' }).end(box.events.filter((e) => e.seq > Number(url.searchParams.get('after'))).map((e) => JSON.stringify(e) + '\n').join(''))
      case 'GET :explain': {
        const told = boxes.explanation(box, Number(id))
        return told ? json(200, told) : refuse(404, `there is no job ${id}`, 'weft ps --all lists them')
      }
      case 'GET :log':
        return this.#log(Number(id), q, a)
      case 'POST :stop':
        return this.#stop(Number(id), json, refuse)
      case 'POST :drain': {
        const gpu = box.gpus[Number(id)]
        gpu.health = url.searchParams.get('off') ? 'ok' : 'drained'
        this.push()
        return json(200, gpu)
      }
    }
    return refuse(404, `nothing at ${q.url}`)
  }

  #stop(id, json, refuse) {
    const { box } = this
    if (box.forbidden) return refuse(403, `job ${id} is carl's`, 'ask carl, or an administrator')
    const job = box.jobs.find((j) => j.id === id)
    Object.assign(job, { state: 'done', outcome: 'stopped', ended_at: new Date().toISOString(), exit: 143 })
    box.jobs = box.jobs.filter((j) => j !== job)
    box.past.push(job)
    this.event({ type: 'ended', job: id, name: job.name, text: 'stopped' })
    this.push()
    return json(200, job)
  }

  #log(id, q, a) {
    const running = this.box.jobs.some((j) => j.id === id)
    const lines = [[1, 'epoch 1 loss 2.31\n'], [2, 'UserWarning: the learning rate is high\n'], [1, 'epoch 2 \u001b[32mloss 1.98\u001b[0m\n'], [0, 'moved to gpu3, resumed from its checkpoint\n'], [1, '10 %\r60 %\r100 % done\nepoch 3 loss 1.72\n']]
    let offset = 0
    const send = (stream, text) => {
      const f = frame(stream, text, offset)
      offset += f.length
      a.write(f)
    }
    a.writeHead(200, { 'Content-Type': 'application/octet-stream' })
    lines.forEach(([stream, text]) => send(stream, text))
    if (!running) return a.end()
    let epoch = 4
    const more = setInterval(() => send(1, `epoch ${epoch++} loss 1.${epoch}\n`), 500)
    q.on('close', () => clearInterval(more))
  }

  #file(path, a) {
    const name = join(dist, normalize(path === '/' ? '/index.html' : path))
    if (!name.startsWith(dist) || !existsSync(name)) return a.writeHead(404).end()
    a.writeHead(200, { 'Content-Type': types[extname(name)] ?? 'application/octet-stream', 'Content-Security-Policy': csp, 'X-Content-Type-Options': 'nosniff' })
    createReadStream(name).pipe(a)
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const fixture = await new Fixture(boxes[process.argv[2] ?? 'mockup']()).start(Number(process.argv[3] ?? 7071))
  console.log(`${fixture.url}/?token=${fixture.token}`)
}
