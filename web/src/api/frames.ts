// The log of a job: frames as package shepherd writes them, put together to lines. The layout, little-endian:
// magic "wfl1" (4), stream (1), zero (3), length of the bytes (4), checksum (4), nanoseconds since 1970 (8), offset (8), bytes.

const header = 32
const most = 64 * 1024
const magic = 0x316c6677 // "wfl1"

export type Source = 'weft' | 'stdout' | 'stderr'
const sources: readonly Source[] = ['weft', 'stdout', 'stderr']

/** Frame is a piece of output; it may end in the middle of a line, or of a character. */
export interface Frame {
  source: Source
  time: number // milliseconds since 1970
  next: number // offset of the frame after it
  bytes: Uint8Array
}

/** Frames takes the bytes of a log as they come, cut anywhere. The checksum is the daemon's to check. */
export class Frames {
  private rest = new Uint8Array(0)

  /** push gives the frames that a piece completes; it throws at what is no frame. */
  push(piece: Uint8Array): Frame[] {
    const all = new Uint8Array(this.rest.length + piece.length)
    all.set(this.rest)
    all.set(piece, this.rest.length)
    const view = new DataView(all.buffer)
    const frames: Frame[] = []
    let at = 0
    while (all.length - at >= header) {
      const length = view.getUint32(at + 8, true)
      const source = sources[all[at + 4] ?? 255]
      if (view.getUint32(at, true) !== magic || length > most || !source) throw new Error('the log is not in frames')
      const next = at + header + length
      if (next > all.length) break
      const time = Number(view.getBigUint64(at + 16, true) / 1_000_000n)
      const offset = Number(view.getBigUint64(at + 24, true))
      frames.push({ source, time, next: offset + header + length, bytes: all.slice(at + header, next) })
      at = next
    }
    this.rest = all.slice(at)
    return frames
  }
}

/** Line is a line of a log. */
export interface Line {
  key: number
  source: Source
  time: number
  text: string
}

const width = 4000 // of a line, in characters

/** Lines puts frames together to lines. The last line of each source may still grow. */
export class Lines {
  private decoders = new Map<Source, TextDecoder>()
  private open = new Map<Source, Line>()
  private lines: Line[] = []
  private key = 0

  private readonly most: number

  /** most is how many lines are kept: the latest. */
  constructor(most: number) {
    this.most = most
  }

  push(frames: readonly Frame[]): void {
    for (const f of frames) this.add(f)
    if (this.lines.length > this.most) this.lines = this.lines.slice(this.lines.length - this.most)
  }

  /** all are the lines so far, oldest first. */
  all(): Line[] {
    return this.lines.map((l) => ({ ...l, text: shown(l.text) }))
  }

  private add(f: Frame): void {
    let decoder = this.decoders.get(f.source)
    if (!decoder) this.decoders.set(f.source, (decoder = new TextDecoder()))
    const pieces = decoder.decode(f.bytes, { stream: true }).split('\n')
    pieces.forEach((piece, i) => {
      let line = this.open.get(f.source)
      if (!line && (piece !== '' || i < pieces.length - 1)) {
        line = { key: this.key++, source: f.source, time: f.time, text: '' }
        this.open.set(f.source, line)
        this.lines.push(line)
      }
      if (line) line.text = rewritten(line.text + piece)
      if (i < pieces.length - 1) this.open.delete(f.source)
    })
  }
}

/** rewritten drops what a carriage return has begun anew, as a terminal does with a progress bar, and what is too long. */
function rewritten(text: string): string {
  const body = text.replace(/\r+$/, '')
  const from = body.lastIndexOf('\r')
  const line = from < 0 ? text : text.slice(from + 1)
  return line.length > width ? line.slice(0, width - 1) + '…' : line
}

// Colours and movements of a terminal: ESC [ ... letter, ESC ] ... BEL; and control characters but the tabulator.
// eslint-disable-next-line no-control-regex
const escapes = /\u001b\[[0-9;?]*[ -/]*[@-~]|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[\u0000-\u0008\u000b-\u001f\u007f]/g

/** shown is a line as text alone. */
export function shown(text: string): string {
  return text.replace(escapes, '')
}
