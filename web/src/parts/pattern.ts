// Fillings for areas on a canvas: a tint of the colour and lines, so that colour is never alone.

import type { Pattern } from './Chart.svelte'

const cache = new Map<string, CanvasPattern>()
const size = 8

/** pattern is a filling that hides what lies behind it. */
export function pattern(ctx: CanvasRenderingContext2D, kind: Pattern, color: string, ground: string): CanvasPattern {
  const key = [kind, color, ground, devicePixelRatio].join()
  let found = cache.get(key)
  if (!found) cache.set(key, (found = ctx.createPattern(tile(kind, color, ground), 'repeat')!))
  return found
}

function tile(kind: Pattern, color: string, ground: string): HTMLCanvasElement {
  const canvas = document.createElement('canvas')
  const n = size * Math.max(1, Math.round(devicePixelRatio))
  canvas.width = canvas.height = n
  const c = canvas.getContext('2d')!
  c.fillStyle = ground
  c.fillRect(0, 0, n, n)
  c.globalAlpha = 0.22
  c.fillStyle = c.strokeStyle = color
  c.fillRect(0, 0, n, n)
  c.globalAlpha = 0.75
  c.lineWidth = n / 8
  c.beginPath()
  lines[kind](c, n)
  c.stroke()
  return canvas
}

const lines: Record<Pattern, (c: CanvasRenderingContext2D, n: number) => void> = {
  none: () => {},
  diagonal: (c, n) => {
    for (const x of [-n, 0, n]) c.moveTo(x, n), c.lineTo(x + n, 0)
  },
  back: (c, n) => {
    for (const x of [-n, 0, n]) c.moveTo(x, 0), c.lineTo(x + n, n)
  },
  dots: (c, n) => c.rect(n / 2 - n / 16, n / 2 - n / 16, n / 8, n / 8),
  horizontal: (c, n) => (c.moveTo(0, n / 2), c.lineTo(n, n / 2)),
  grid: (c, n) => (c.moveTo(0, n / 2), c.lineTo(n, n / 2), c.moveTo(n / 2, 0), c.lineTo(n / 2, n)),
}
