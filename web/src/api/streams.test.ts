import { describe, expect, it } from 'vitest'
import { Frames, Lines, shown } from './frames'
import { parse } from './lists'
import { Decoder } from './sse'

/** pieces cuts at every length from 1 to 5, so that nothing depends on where a read ends. */
function pieces<T>(all: { length: number; slice(a: number, b: number): T }): T[][] {
  return [1, 2, 3, 4, 5, all.length].map((n) => Array.from({ length: Math.ceil(all.length / n) }, (_, i) => all.slice(i * n, (i + 1) * n)))
}

describe('server-sent events', () => {
  it('are the same wherever the stream is cut', () => {
    const stream = ': alive\n\nevent: state\ndata: {"a":\ndata: 1}\n\nevent:event\r\ndata:x\r\nid: 7\r\n\r\nevent: nothing\n\ndata: plain\n\ndata: unfinished'
    for (const cut of pieces(stream)) {
      const d = new Decoder()
      expect(cut.flatMap((p) => d.push(p))).toEqual([{ event: '', data: 'alive' }, { event: 'state', data: '{"a":\n1}' }, { event: 'event', data: 'x' }, { event: 'message', data: 'plain' }])
    }
  })
})

function frame(source: number, text: string | Uint8Array, offset = 0): Uint8Array {
  const bytes = typeof text === 'string' ? new TextEncoder().encode(text) : text
  const all = new Uint8Array(32 + bytes.length)
  const view = new DataView(all.buffer)
  all.set([0x77, 0x66, 0x6c, 0x31, source])
  view.setUint32(8, bytes.length, true)
  view.setBigUint64(16, 1_700_000_000_123_456_789n, true)
  view.setBigUint64(24, BigInt(offset), true)
  all.set(bytes, 32)
  return all
}

function joined(...parts: Uint8Array[]): Uint8Array {
  return Uint8Array.from(parts.flatMap((p) => [...p]))
}

describe('logs', () => {
  it('are the same lines wherever the stream, a line or a character is cut', () => {
    const ä = new TextEncoder().encode('ä\n')
    const log = joined(frame(1, 'one\ntw'), frame(2, 'oops'), frame(1, 'o\n\n', 70), frame(1, ä.slice(0, 1)), frame(2, '\n'), frame(1, ä.slice(1)), frame(0, 'dropped 3 KiB\n'), frame(1, 'open'))
    for (const cut of pieces(log)) {
      const [frames, lines] = [new Frames(), new Lines(100)]
      for (const p of cut) lines.push(frames.push(p as Uint8Array))
      expect(lines.all().map((l) => [l.source, l.text])).toEqual([['stdout', 'one'], ['stdout', 'two'], ['stderr', 'oops'], ['stdout', ''], ['stdout', 'ä'], ['weft', 'dropped 3 KiB'], ['stdout', 'open']])
    }
  })

  it('go on where they were', () => {
    const [f] = new Frames().push(frame(1, 'abc', 1000))
    expect([f?.next, f?.time]).toEqual([1035, 1_700_000_000_123])
  })

  it('keep the latest lines, and know each again', () => {
    const lines = new Lines(3)
    lines.push(new Frames().push(frame(1, 'a\nb\nc\nd\ne')))
    expect(lines.all().map((l) => [l.key, l.text])).toEqual([[2, 'c'], [3, 'd'], [4, 'e']])
    lines.push(new Frames().push(frame(1, '!')))
    expect(lines.all().at(-1)?.text).toBe('e!')
  })

  it('show a progress bar as a terminal does', () => {
    const lines = new Lines(3)
    for (const t of ['10 %\r', '20 %\r', '100 %', '\r\nnext\r\n']) lines.push(new Frames().push(frame(1, t)))
    expect(lines.all().map((l) => l.text)).toEqual(['100 %', 'next'])
  })

  it('have no colours and no end of the world', () => {
    expect(shown('\u001b[1;32mok\u001b[0m \u001b]0;title\u0007tab\there\u0000')).toBe('ok tab\there')
    const lines = new Lines(3)
    for (let i = 0; i < 50; i++) lines.push(new Frames().push(frame(1, 'x'.repeat(1000))))
    expect(lines.all()[0]?.text.length).toBeLessThanOrEqual(4000)
  })

  it.each([['magic', 0, 0], ['source', 4, 9], ['length', 11, 255]])('refuse what is no frame: %s', (_, at, value) => {
    const bad = frame(1, 'x')
    bad[at] = value
    expect(() => new Frames().push(bad)).toThrow()
  })
})

describe('JSON of the daemon', () => {
  it('has empty lists for null ones, and null for what is unknown', () => {
    expect(parse('{"on":null,"rate_fraction":null,"count":[1,null]}')).toEqual({ on: [], rate_fraction: null, count: [1, null] })
  })
})
