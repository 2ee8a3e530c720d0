// Server-sent events from the bytes of a response. The browser's EventSource hides the status of a refusal and the
// comments that say that the daemon is alive; both are wanted here.

/** Message is one event of a stream; a comment has the event "". */
export interface Message {
  event: string
  data: string
}

/** Decoder takes pieces of a stream as they come, cut anywhere, and gives the messages that they complete. */
export class Decoder {
  private rest = ''
  private event = ''
  private data: string[] = []

  push(text: string): Message[] {
    this.rest += text
    const lines = this.rest.split(/\r\n|\n|\r(?!$)/)
    this.rest = lines.pop() ?? ''
    return lines.flatMap((line) => this.line(line))
  }

  private line(line: string): Message[] {
    if (line === '') return this.end()
    if (line.startsWith(':')) return [{ event: '', data: line.slice(1).trim() }]
    const colon = line.indexOf(':')
    const field = colon < 0 ? line : line.slice(0, colon)
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '')
    if (field === 'event') this.event = value
    if (field === 'data') this.data.push(value)
    return []
  }

  private end(): Message[] {
    const message = { event: this.event || 'message', data: this.data.join('\n') }
    const empty = this.data.length === 0
    this.event = ''
    this.data = []
    return empty ? [] : [message]
  }
}
