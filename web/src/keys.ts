// Keys, apart from those that the browser knows itself.

/** Press is what of a key matters here. */
export interface Press {
  key: string
  ctrlKey: boolean
  metaKey: boolean
  altKey: boolean
}

export type Action = { do: 'search' } | { do: 'help' } | { do: 'escape' } | { do: 'go'; to: string } | { do: 'move'; by: 1 | -1 }

const places: Record<string, string> = { n: '#/now', j: '#/jobs', g: '#/gpus', e: '#/events' }
const patience = 1500 // ms between g and the letter after it

/** Keys turns keys into actions. */
export class Keys {
  private g = -Infinity

  /** press is the action of a key at a time in ms, or null. While somebody types, only Escape is ours. */
  press(p: Press, typing: boolean, at: number): Action | null {
    if (p.ctrlKey || p.metaKey || p.altKey) return null
    if (p.key === 'Escape') return { do: 'escape' }
    if (typing) return null
    const led = at - this.g <= patience
    this.g = -Infinity
    const to = places[p.key]
    if (led && to) return { do: 'go', to }
    switch (p.key) {
      case 'g':
        this.g = at
        return null
      case '/':
        return { do: 'search' }
      case '?':
        return { do: 'help' }
      case 'ArrowDown':
      case 'ArrowRight':
        return { do: 'move', by: 1 }
      case 'ArrowUp':
      case 'ArrowLeft':
        return { do: 'move', by: -1 }
    }
    return null
  }
}
