// The part of time that all charts of the page show.

import { live } from './api/live.svelte'
import { here } from './here.svelte'
import { minutes, spans, zoomed, type Span } from './model/route'
import { covering, end } from './model/series'

class Shown {
  /** minutes is as chosen, or the least that shows all that is known. */
  minutes = $derived(minutes(here.route) ?? (live.history ? covering(live.history, spans) : (spans.at(-1) ?? 30)))

  now = $derived.by((): Span => {
    const zoom = zoomed(here.route)
    if (zoom) return zoom
    const to = live.history ? end(live.history) : Math.floor(Date.now() / 1000)
    return { from: to - 60 * this.minutes, to }
  })
}

export const span = new Shown()
