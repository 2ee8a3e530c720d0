// What the page knows of the box, kept up to date while somebody looks: a stream of states and events, and the history,
// which is asked for again and again. Nothing is asked while the page is hidden.

import { alarming, news, seen, type Seen } from '../model/alarms'
import { ask, events as askEvents, history as askHistory, Refused } from './client'
import { parse } from './lists'
import { Decoder, type Message } from './sse'
import type { Event, GPU, History, Job, Status } from './types'

/** State is the box at one instant. */
export interface State {
  status: Status
  jobs: Job[]
  gpus: GPU[]
}

const silence = 5000 // ms without a byte after which what is shown counts as stale
const kept = 1000 // events
const minutes = 30 // of history
const phone = matchMedia('(max-width: 599px)')

class Live {
  state = $state.raw<State | null>(null)
  events = $state.raw<Event[]>([])
  history = $state.raw<History | null>(null)
  refused = $state(false) // the daemon wants a token
  alarm = $state('') // to be read out
  now = $state(Date.now())
  private heard = $state(0)
  private connected = false
  private told = false // that it is stale
  private before: Seen | null = null
  private follow = new Bell()
  private remember = new Bell()

  /** age is how long ago the daemon was heard, in seconds. */
  age = $derived(this.heard === 0 ? null : Math.max(0, (this.now - this.heard) / 1000))
  stale = $derived(this.age !== null && this.age * 1000 > silence)
  busy = $derived(new Map((this.state?.jobs ?? []).map((j) => [j.id, j])))

  /** start keeps the page up to date until the signal is given. */
  start(signal: AbortSignal): void {
    const tick = setInterval(() => this.tick(), 1000)
    signal.addEventListener('abort', () => clearInterval(tick))
    document.addEventListener('visibilitychange', () => this.again(), { signal })
    phone.addEventListener('change', () => this.again(), { signal })
    void this.repeat(this.follow, signal, (s) => this.stream(s))
    void this.repeat(this.remember, signal, (s) => this.past(s))
  }

  /** again asks anew, after a refusal for one. */
  again(): void {
    this.refused = false
    this.follow.ring()
    this.remember.ring()
  }

  // A connection that has died without a word is given up.
  private tick(): void {
    this.now = Date.now()
    if (this.stale && !this.told) this.say(['No word from the daemon'])
    this.told = this.stale
    if (this.connected && this.age !== null && this.age * 1000 > 3 * silence) this.follow.ring()
  }

  private async repeat(bell: Bell, signal: AbortSignal, work: (signal: AbortSignal) => Promise<void>): Promise<void> {
    let pause = 250
    while (!signal.aborted) {
      const either = AbortSignal.any([signal, bell.signal])
      if (document.hidden || this.refused) {
        await sleep(86_400_000, either)
        continue
      }
      const began = Date.now()
      try {
        await work(either)
      } catch (e) {
        if (!either.aborted) this.failed(e)
      }
      pause = Date.now() - began > 2000 ? 250 : Math.min(pause * 2, 4000)
      await sleep(pause, either)
    }
  }

  private failed(e: unknown): void {
    if (!(e instanceof Refused) || e.status !== 401) return
    this.refused = true
    this.follow.ring()
    this.remember.ring()
  }

  private async stream(signal: AbortSignal): Promise<void> {
    const answer = await ask(`/v1/stream?interval_s=${phone.matches ? 5 : 1}`, { signal })
    this.connected = true
    const decoder = new Decoder()
    const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader()
    try {
      await this.missed(signal)
      for (;;) {
        const { done, value } = await reader.read()
        if (done) return
        this.heard = this.now = Date.now()
        for (const message of decoder.push(value)) this.take(message)
      }
    } finally {
      this.connected = false
      void reader.cancel().catch(() => {})
    }
  }

  // What happened while nobody listened.
  private async missed(signal: AbortSignal): Promise<void> {
    this.add(await askEvents(this.events[0]?.seq ?? 0, '24h', signal))
  }

  private take({ event, data }: Message): void {
    if (event === 'state') {
      const state = parse<State>(data)
      const after = seen(state.status, state.gpus)
      this.say(news(this.before, after))
      this.before = after
      this.state = state
    } else if (event === 'event') {
      const one = parse<Event>(data)
      this.add([one])
      if (alarming(one) && one.type !== 'below_floor') this.say([one.text])
    }
  }

  private say(sentences: string[]): void {
    if (sentences.length > 0) this.alarm = sentences.join('. ')
  }

  // Newest first, each once. A number below the newest is of a daemon that began anew.
  private add(list: Event[]): void {
    const newest = this.events[0]?.seq ?? 0
    const fresh = list.filter((e) => e.seq > newest).sort((a, b) => b.seq - a.seq)
    if (fresh.length > 0) this.events = [...fresh, ...this.events].slice(0, kept)
  }

  private async past(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      this.history = await askHistory(minutes, signal)
      const step = Math.max(this.history.step_s, phone.matches ? 15 : 5)
      await sleep(Math.min(step, 30) * 1000, signal)
    }
  }
}

/** Bell wakes who waits for it, or ends what they do. */
class Bell {
  private controller = new AbortController()

  get signal(): AbortSignal {
    return this.controller.signal
  }

  ring(): void {
    this.controller.abort()
    this.controller = new AbortController()
  }
}

function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve()
    const done = (): void => {
      clearTimeout(timer)
      signal.removeEventListener('abort', done)
      resolve()
    }
    const timer = setTimeout(done, ms)
    signal.addEventListener('abort', done)
  })
}

export const live = new Live()
