// Pictures of every page, to look at: node test/shots.mjs [FOLDER [LOOK,... [URL with its token]]]

import { mkdirSync } from 'node:fs'
import * as boxes from './box.mjs'
import { browser, open } from './browser.mjs'
import { Fixture } from './server.mjs'

const [folder = '/tmp/weft-page', only = '', given] = process.argv.slice(2)
mkdirSync(folder, { recursive: true })
const fixture = given ? null : await new Fixture(boxes.mockup()).start()
const url = given ?? `${fixture.url}/?token=${fixture.token}`
const looks = {
  light: { colorScheme: 'light', viewport: { width: 1440, height: 900 } },
  dark: { colorScheme: 'dark', viewport: { width: 1440, height: 900 } },
  phone: { colorScheme: 'light', viewport: { width: 360, height: 1500 }, isMobile: true, hasTouch: true, deviceScaleFactor: 2 },
}
const [runs, waits] = given ? [1, 7] : [43, 47]
const pages = { now: '#/now', jobs: '#/jobs?all=1', job: `#/jobs/${runs}`, waits: `#/jobs/${waits}`, gpu: '#/gpus/1', gpus: '#/gpus', events: '#/events' }
const chromium = await browser()
for (const [look, options] of Object.entries(looks)) {
  if (only && !only.split(',').includes(look)) continue
  const { page, context } = await open(chromium, url, options)
  for (const [name, hash] of Object.entries(pages)) {
    await page.evaluate((h) => (location.hash = h), hash)
    await page.waitForTimeout(1200)
    await page.screenshot({ path: `${folder}/${name}-${look}.png`, fullPage: look !== 'phone' })
  }
  await context.close()
}
await chromium.close()
await fixture?.die()
