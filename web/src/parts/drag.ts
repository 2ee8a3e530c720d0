// Dragging over what has time from its left to its right.

import type { Attachment } from 'svelte/attachments'

/** drag calls back with the two ends of a drag, as shares of the width of the part named, if any; and while it goes on, with
 *  null at its end. */
export function drag(during: (part: [number, number] | null) => void, done: (part: [number, number]) => void, part = ''): Attachment<HTMLElement> {
  return (node) => {
    const stop = new AbortController()
    const { signal } = stop
    let from: number | null = null
    let moved = false
    const at = (e: PointerEvent): number => {
      const box = ((part && node.querySelector(part)) || node).getBoundingClientRect()
      return Math.min(1, Math.max(0, (e.clientX - box.left) / box.width))
    }
    const end = (): void => {
      from = null
      during(null)
    }
    node.addEventListener('pointerdown', (e) => {
      moved = false
      if (e.button === 0 && e.pointerType === 'mouse') from = at(e)
    }, { signal })
    window.addEventListener('pointermove', (e) => {
      if (from === null) return
      const to = at(e)
      if (Math.abs(to - from) * node.clientWidth > 6) moved = true
      if (moved) during(from < to ? [from, to] : [to, from])
    }, { signal })
    window.addEventListener('pointerup', (e) => {
      if (from === null) return
      const to = at(e)
      if (moved) done(from < to ? [from, to] : [to, from])
      end()
    }, { signal })
    // What was dragged over is not clicked, and links are not carried away.
    node.addEventListener('click', (e) => moved && (e.preventDefault(), e.stopPropagation()), { signal, capture: true })
    node.addEventListener('dragstart', (e) => e.preventDefault(), { signal })
    return () => stop.abort()
  }
}
