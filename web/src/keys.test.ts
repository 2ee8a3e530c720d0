import { describe, expect, it } from 'vitest'
import { Keys } from './keys'

const key = (key: string, over = {}) => ({ key, ctrlKey: false, metaKey: false, altKey: false, ...over })

describe('keys', () => {
  it('lead to pages after g, for a while', () => {
    const keys = new Keys()
    expect(keys.press(key('g'), false, 0)).toBeNull()
    expect(keys.press(key('j'), false, 100)).toEqual({ do: 'go', to: '#/jobs' })
    expect(keys.press(key('j'), false, 200)).toBeNull()
    keys.press(key('g'), false, 1000)
    expect(keys.press(key('g'), false, 1100)).toEqual({ do: 'go', to: '#/gpus' })
    keys.press(key('g'), false, 5000)
    expect(keys.press(key('e'), false, 9000)).toBeNull()
  })

  it('leave those alone who type, and the browser its own', () => {
    const keys = new Keys()
    expect(['/', 'g', '?', 'ArrowDown'].map((k) => keys.press(key(k), true, 0))).toEqual([null, null, null, null])
    expect(keys.press(key('Escape'), true, 0)).toEqual({ do: 'escape' })
    expect(keys.press(key('/', { ctrlKey: true }), false, 0)).toBeNull()
  })

  it('move and search', () => {
    const keys = new Keys()
    expect(['ArrowDown', 'ArrowUp', 'ArrowLeft', 'ArrowRight', '/', '?', 'x'].map((k) => keys.press(key(k), false, 0))).toEqual([
      { do: 'move', by: 1 }, { do: 'move', by: -1 }, { do: 'move', by: -1 }, { do: 'move', by: 1 }, { do: 'search' }, { do: 'help' }, null,
    ])
  })
})
