// Dark or light, as the reader's system says: what is drawn on a canvas must know.

const query = matchMedia('(prefers-color-scheme: dark)')

class Theme {
  dark = $state(query.matches)

  constructor() {
    query.addEventListener('change', () => (this.dark = query.matches))
  }
}

export const theme = new Theme()
