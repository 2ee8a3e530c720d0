// The page in a real browser, before a box that is made up: what is live, what keys and clicks do, and what happens when
// the daemon dies. Run by npm run test:browser; skipped, loudly, where there is no browser.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { after, before, test } from 'node:test'
import * as boxes from './box.mjs'
import { browser, found, open } from './browser.mjs'
import { Fixture } from './server.mjs'

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const phone = { viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true }
const hashes = ['#/now', '#/jobs?all=1', '#/jobs/43', '#/jobs/46', '#/jobs/47', '#/jobs/40', '#/jobs/999', '#/gpus', '#/gpus/1', '#/gpus/9', '#/events']
const skip = found() ? false : 'NO BROWSER: scripts/deps.sh installs one'
const limit = { skip, timeout: 240_000 }
let chromium

before(async () => {
  if (found()) chromium = await browser()
})
after(() => chromium?.close())

/** at opens a page before a fixture, does what a test does, and wants no fault at the end, but those allowed. */
async function at(box, options, work, allowed = /^$/) {
  const fixture = await new Fixture(box).start()
  const { page, context, faults } = await open(chromium, `${fixture.url}/?token=${fixture.token}`, options)
  page.setDefaultTimeout(30_000)
  try {
    await page.waitForSelector('main h1')
    await work(page, fixture)
    assert.deepEqual(faults.filter((f) => !allowed.test(f)), [])
  } finally {
    await context.close()
    await fixture.die().catch(() => {})
  }
}

const go = async (page, hash) => {
  await page.evaluate((h) => (location.hash = h), hash)
  await page.waitForFunction(() => !document.querySelector('main .skeleton') && document.querySelector('main h1'))
}
const text = (page, selector) => page.locator(selector).first().innerText()
const focused = (page) => page.evaluate(() => document.activeElement?.getAttribute('aria-label') ?? document.activeElement?.textContent)
const refused = /status of 40[134]|ERR_/ // the browser itself writes these to its console

test('what happens shows by itself: a job appears, a rate falls, an alarm is said', limit, () =>
  at(boxes.mockup(), {}, async (page, { box, ...f }) => {
    assert.match(await text(page, 'header'), /box1[\s\S]*0 below floor[\s\S]*2\s+waiting/)
    box.jobs.push(boxes.job(49, { name: 'newcomer', rate_fraction: 0.5, on: [2] }))
    await page.waitForSelector('main >> text=newcomer')
    await page.waitForFunction(() => document.querySelector('header').innerText.includes('1 below floor'))
    assert.match(await text(page, '[role=status]'), /1.job below the floor/)
    assert.match(await page.title(), /^\(1\) Now · box1/)
    assert.ok(f)
  }))

test('an event shows as it happens', limit, () =>
  at(boxes.mockup(), {}, async (page, fixture) => {
    await go(page, '#/events')
    fixture.event({ type: 'unhealthy', gpu: 2, text: 'XID 79' })
    await page.waitForSelector('main li.bad >> text=XID 79')
    assert.match(await text(page, '[role=status]'), /XID 79/)
  }))

test('stop asks once, says what went wrong, and then stops', limit, () =>
  at(boxes.mockup(), {}, async (page, fixture) => {
    await go(page, '#/jobs/43')
    fixture.box.forbidden = true
    await page.getByRole('button', { name: 'Stop', exact: true }).click()
    await page.getByRole('button', { name: 'Let it run' }).click()
    assert.equal(fixture.asked.filter((q) => q.startsWith('POST')).length, 0)
    await page.getByRole('button', { name: 'Stop', exact: true }).click()
    await page.getByRole('button', { name: 'Stop job 43' }).click()
    await page.waitForSelector("dialog >> text=job 43 is carl's")
    fixture.box.forbidden = false
    await page.getByRole('button', { name: 'Stop job 43' }).click()
    await page.waitForSelector('main .state >> text=stopped')
    assert.deepEqual(fixture.asked.filter((q) => q.startsWith('POST')), ['POST /v1/jobs/43/stop', 'POST /v1/jobs/43/stop'])
  }, refused))

test('a GPU is drained and taken back', limit, () =>
  at(boxes.mockup(), {}, async (page) => {
    await go(page, '#/gpus/2')
    await page.getByRole('button', { name: 'Drain', exact: true }).click()
    await page.getByRole('button', { name: 'Drain gpu2' }).click()
    await page.getByRole('button', { name: 'Take back' }).click()
    await page.locator('dialog').getByRole('button', { name: 'Take back' }).click()
    await page.getByRole('button', { name: 'Drain', exact: true }).waitFor()
  }))

test('the log is followed, without colours, stderr marked', limit, () =>
  at(boxes.mockup(), {}, async (page) => {
    await go(page, '#/jobs/43')
    await page.waitForSelector('[role=log] >> text=epoch 6')
    assert.match(await text(page, '[role=log] .stderr'), /err\s*UserWarning/)
    const all = await text(page, '[role=log]')
    assert.match(all, /epoch 2 loss 1\.98/)
    assert.match(all, /100 % done/)
    assert.doesNotMatch(all, /60 %|\[32m/)
  }))

test('all can be done with keys', limit, () =>
  at(boxes.mockup(), {}, async (page) => {
    const keys = async (...list) => {
      for (const k of list) await page.keyboard.press(k)
    }
    await page.waitForSelector('.bar')
    await keys('ArrowDown')
    assert.match(await focused(page), /^job 41 resnet50, guaranteed, on gpu0/)
    await keys('ArrowRight', 'Enter')
    await page.waitForFunction(() => location.hash === '#/jobs/42')
    await keys('Escape')
    await page.waitForFunction(() => location.hash === '#/jobs')
    const back = await page.evaluate(() => {
      location.hash = '#/jobs/42' // as a link does: the browser tells the page of it only later
      document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape', bubbles: true }))
      return location.hash
    })
    assert.equal(back, '#/jobs')
    await keys('g', 'e')
    await page.waitForFunction(() => location.hash === '#/events')
    await keys('g', 'n', '/')
    await page.waitForFunction(() => document.activeElement?.matches('[data-search]'))
    await page.keyboard.type('memoryoverflow')
    await page.waitForFunction(() => document.querySelectorAll('main tbody tr').length === 1)
    assert.match(page.url(), /#\/jobs\?q=memoryoverflow$/)
    await keys('Escape', 'ArrowDown', 'Enter')
    await page.waitForFunction(() => location.hash === '#/jobs/47')
    await page.waitForSelector('main >> text=nearest')
    await page.getByRole('button', { name: 'Stop', exact: true }).focus()
    await keys('Enter', 'Escape')
    await page.waitForFunction(() => !document.querySelector('dialog[open]'))
    assert.equal(await focused(page), 'Stop')
    await keys('?')
    await page.waitForSelector('dialog >> text=from row to row')
    await keys('Escape', 'g', 'g')
    await page.waitForFunction(() => location.hash === '#/gpus')
    const outline = await page.evaluate(() => (document.querySelector('nav a').focus(), getComputedStyle(document.activeElement).outlineWidth))
    assert.equal(outline, '2px')
  }))

test('a reason opens its meaning, and the address holds it', limit, () =>
  at(boxes.mockup(), {}, async (page) => {
    await go(page, '#/jobs')
    await page.getByRole('link', { name: 'MemoryOverflow' }).click()
    await page.waitForSelector('dialog >> text=want more memory at once')
    assert.match(page.url(), /#\/jobs\?reason=MemoryOverflow$/)
    await page.reload()
    await page.waitForSelector('dialog >> text=want more memory at once')
    await page.keyboard.press('Escape')
    await page.waitForFunction(() => location.hash === '#/jobs')
  }))

test('dragging zooms all charts, and back undoes it', limit, () =>
  at(boxes.mockup(), {}, async (page) => {
    await page.waitForSelector('.bar')
    const box = await page.locator('.lanes').boundingBox()
    await page.mouse.move(box.x + box.width * 0.5, box.y + 12)
    await page.mouse.down()
    await page.mouse.move(box.x + box.width * 0.8, box.y + 12, { steps: 4 })
    await page.mouse.up()
    await page.waitForFunction(() => /from=\d+&to=\d+/.test(location.hash))
    const [, from, to] = /from=(\d+)&to=(\d+)/.exec(page.url()).map(Number)
    assert.ok(to - from > 400 && to - from < 700, `${to - from} s`)
    await page.goBack()
    await page.waitForFunction(() => !location.hash.includes('from='))
    await page.locator('.u-over').first().scrollIntoViewIfNeeded()
    await page.waitForTimeout(500)
    const over = await page.locator('.u-over').first().boundingBox()
    await page.mouse.move(over.x + over.width * 0.2, over.y + 20)
    await page.mouse.down()
    await page.mouse.move(over.x + over.width * 0.6, over.y + 20, { steps: 4 })
    await page.mouse.up()
    await page.waitForFunction(() => /from=\d+&to=\d+/.test(location.hash))
    await page.mouse.move(5, 300)
    await page.keyboard.press('Escape')
    await page.waitForFunction(() => !location.hash.includes('from='))
  }))

test('a dead daemon is told within seconds, and a new one is found', limit, () =>
  at(boxes.mockup(), {}, async (page, fixture) => {
    await page.waitForSelector('.bar')
    await fixture.die()
    const banner = page.locator('.banner', { hasText: 'Stale' })
    await banner.waitFor()
    const [, age] = /No word from the daemon for (?:(\d+)s|\dm)/.exec(await banner.innerText())
    assert.ok(age === undefined || Number(age) >= 5, `too early: after ${age} s`)
    assert.match(await text(page, '[role=status]'), /No word from the daemon/)
    fixture.box.jobs[0].name = 'renamed'
    await fixture.start()
    await page.waitForSelector('.banner >> text=Stale', { state: 'detached' })
    await page.waitForSelector('main >> text=renamed')
  }, refused))

test('without its token the page says where to find it, and goes on with it', limit, () =>
  at(boxes.mockup(), {}, async (page, fixture) => {
    fixture.refuse = true
    await fixture.die()
    await fixture.start()
    await page.waitForSelector('main >> text=Open the URL that')
    await page.waitForTimeout(500)
    const asked = fixture.asked.length
    await page.waitForTimeout(2500)
    assert.deepEqual(fixture.asked.slice(asked), [], 'it asks on and on')
    fixture.refuse = false
    await page.getByRole('button', { name: 'Try again' }).click()
    await page.waitForSelector('.bar')
  }, refused))

test('nothing is asked while the page is hidden', limit, () =>
  at(boxes.mockup(), {}, async (page, fixture) => {
    await page.waitForSelector('.bar')
    const hide = (yes) =>
      page.evaluate((hidden) => {
        Object.defineProperty(document, 'hidden', { value: hidden, configurable: true })
        document.dispatchEvent(new Event('visibilitychange'))
      }, yes)
    await hide(true)
    await page.waitForTimeout(300)
    const asked = fixture.asked.length
    await page.waitForTimeout(7000)
    assert.equal(fixture.asked.length, asked)
    await hide(false)
    await page.waitForFunction(() => document.querySelector('.live').innerText.includes('live'))
    assert.ok(fixture.asked.length > asked)
  }))

test('an idle box says how to begin', limit, () =>
  at(boxes.idle(), {}, async (page) => {
    await page.waitForSelector('main >> text=weft run --floor 0.8 -- python train.py')
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write'])
    await page.locator('main button:visible', { hasText: 'Copy' }).click()
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), 'weft run --floor 0.8 -- python train.py')
  }))

for (const [look, options] of [['light', { colorScheme: 'light' }], ['dark', { colorScheme: 'dark' }], ['a phone', phone]]) {
  test(`every page can be read by everybody: ${look}`, limit, () =>
    at(boxes.mockup(), options, async (page) => {
      const wrong = []
      for (const hash of hashes) {
        await go(page, hash)
        await page.waitForTimeout(400)
        await page.evaluate(() => document.querySelectorAll('details').forEach((d) => (d.open = true)))
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)
        if (wide > 0) wrong.push(`${hash} is ${wide} px too wide`)
        await page.evaluate(axe)
        const { violations } = await page.evaluate(() => window.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }))
        wrong.push(...violations.map((v) => `${hash}: ${v.id}: ${v.nodes.map((n) => `${n.html.slice(0, 160)} ${n.any[0]?.message ?? ''}`).join(' | ')}`))
        const least = look === 'a phone' ? 44 : 24
        wrong.push(...(await page.evaluate(small, least)).map(([name, h]) => `${hash}: target ${name} has ${h} px, not ${least}`))
      }
      assert.deepEqual(wrong, [])
    }, refused))
}

// Targets that are too low, but those within a sentence or a drawing, whose neighbours leave room (WCAG 2.5.8).
function small(least) {
  return [...document.querySelectorAll('main button, nav a, header button, main [data-row]:not(.bar), main input:not([type=checkbox]), main summary')]
    .filter((e) => e.offsetParent && !e.closest('.tracks, li .text, td, th, dialog, .on'))
    .map((e) => [e.textContent.trim().slice(0, 30), Math.round(e.getBoundingClientRect().height)])
    .filter(([, h]) => h > 0 && h < least)
}

test('a phone asks for less: a state each 5 seconds', limit, () =>
  at(boxes.mockup(), phone, async (page, fixture) => {
    await page.waitForSelector('.bar')
    assert.ok(fixture.asked.some((q) => q.startsWith('GET /v1/stream?interval_s=5')))
    await page.getByRole('link', { name: /why/ }).first().tap()
    await page.waitForFunction(() => location.hash === '#/jobs/47')
  }))

/** computed is the time of a processor that the page took so far, in seconds; that others keep the machine busy does not count. */
async function computed(cdp) {
  const { metrics } = await cdp.send('Performance.getMetrics')
  return metrics.find((m) => m.name === 'TaskDuration').value
}

test('a full box of 64 jobs on 16 GPUs, and 200 that wait, is smooth', limit, () =>
  at(boxes.crowd(), { viewport: { width: 1440, height: 900 } }, async (page) => {
    await page.waitForSelector('.bar')
    assert.equal(await page.locator('.bar').count(), 64)
    const cdp = await page.context().newCDPSession(page)
    await cdp.send('Performance.enable', { timeDomain: 'threadTicks' })
    for (const hash of ['#/now', '#/jobs']) {
      await go(page, hash)
      await page.waitForTimeout(500)
      const began = await computed(cdp)
      await page.waitForTimeout(10_000)
      const busy = ((await computed(cdp)) - began) / 10
      console.log(`# ${hash}: ${(busy * 100).toFixed(1)} % of one processor`)
      assert.ok(busy < 0.3, `${hash} keeps the browser busy for ${busy}`)
    }
    await page.getByRole('searchbox').fill('sweep-19')
    await page.waitForFunction(() => document.querySelectorAll('main tbody tr').length === 11)
  }))
