// The part of time that all charts of the page show.

import { live } from './api/live.svelte'
import { here } from './here.svelte'
import { minutes, zoomed, type Span } from './model/route'
import { end } from './model/series'

class Shown {
  now = $derived.by((): Span => {
    const zoom = zoomed(here.route)
    if (zoom) return zoom
    const to = live.history ? end(live.history) : Math.floor(Date.now() / 1000)
    return { from: to - 60 * minutes(here.route), to }
  })
}

export const span = new Shown()
