/** The panel, the tab of a session, and what they say when something is not there. */
import { execFileSync } from 'node:child_process';
import { expect, test } from '@playwright/test';

import { SETUP, busy, free } from './cells.js';
import { Lab, button, card, command, dark, python, runAll, shot } from './lab.js';
import { rich } from './rich.js';

/** Sessions and events as large as they may become, made by the engine itself. */
const FLEET = `
import sys
from ipyagent_lab.testing import fleet
from ipyagent_sessions.store import Store
fleet(Store(sys.argv[1]), int(sys.argv[2]), events=int(sys.argv[3]), waiting=3)
`;

/** Frames are measured until they come fast enough: whatever else the machine does at the moment only takes away from them. */
const PATIENCE = 30_000;

const fill = (lab: Lab, sessions: number, events: number): void => {
  execFileSync(python, ['-P', '-c', FLEET, lab.store, String(sessions), String(events)]);
};

test.describe('with a server part', () => {
  let lab: Lab;
  test.beforeAll(async () => {
    lab = await Lab.start();
  });
  test.afterAll(async () => lab.stop());

  test('it teaches while it is empty, then lists, and opens card and timeline', async ({ page }) => {
    const sockets: string[] = [];
    page.on('websocket', socket => socket.url().includes('ipyagent') && sockets.push(socket.url()));
    await lab.visit(page, 'lab?reset');
    await command(page, 'ipyagent:show-panel');
    await expect(page.locator('.ipa-side .ipa-empty')).toContainText('%agent run count');
    await shot(page, 'panel-empty');
    const cost = await page.evaluate(() => performance.getEntriesByName('ipyagent:activate').map(entry => entry.duration));
    console.log('activate in ms:', cost);
    expect(cost.reduce((sum, each) => sum + each, 0)).toBeLessThan(30);
    sockets.length = 0;
    await lab.open(page, 'panel.ipynb', [SETUP, free('tidy --title "Tidy up the checkout"'), free('audit --n 5 --title "Short audit"'), busy('audit --n 200 --title "Backfill 2019 to 2025"')]);
    await command(page, 'ipyagent:show-panel');
    await runAll(page);
    const row = (title: string) => page.locator('.ipa-row', { hasText: title });
    await expect(row('Tidy up the checkout')).toBeVisible();
    await expect(row('Backfill 2019 to 2025')).toBeVisible();
    await expect(page.locator('.ipa-group').first()).toContainText('Needs you');
    await expect(page.locator('.ipa-status')).toHaveText('1 running, 1 needs you');
    await expect(page.locator('.ipa-group', { hasText: 'Done' })).toBeVisible();
    await row('Backfill 2019 to 2025').click();
    const tab = page.locator('.ipa-tab .ipa-card');
    await expect(tab).toHaveAttribute('data-state', 'running');
    await expect(tab.locator('.ipa-lanes canvas')).toBeVisible();
    await tab.locator('.ipa-lanes').click({ position: { x: 300, y: 40 } });
    await expect(tab.locator('.ipa-past')).toContainText('at event');
    await expect(tab.locator('.ipa-past')).not.toContainText('rebuilding');
    await shot(page, 'panel-light');
    expect(sockets.length).toBe(1); // cards, panel, tab and status bar share it
    await dark(page);
    await shot(page, 'panel-dark');
    await row('Backfill 2019 to 2025').click({ button: 'right' });
    await page.locator('.lm-Menu-itemLabel', { hasText: 'Pause' }).click();
    await expect(tab).toHaveAttribute('data-state', 'interrupted');
    await expect(page.locator('.ipa-status')).toHaveText('1 needs you');
  });

  test('with the keyboard alone', async ({ page }) => {
    await lab.visit(page, 'lab?reset');
    await command(page, 'ipyagent:show-panel');
    await page.locator('.ipa-search').focus();
    await page.keyboard.type('short');
    await expect(page.locator('.ipa-row')).toHaveCount(1);
    await page.locator('.ipa-rows').focus();
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    await expect(page.locator('.ipa-tab .ipa-title')).toHaveText('Short audit');
  });

  test('keys that come faster than it is drawn each count', async ({ page }) => {
    await lab.visit(page, 'lab?reset');
    await command(page, 'ipyagent:show-panel');
    await page.locator('.ipa-search').fill('short');
    await expect(page.locator('.ipa-row')).toHaveCount(1);
    await page.locator('.ipa-rows').evaluate(list => {
      for (const key of ['Home', 'ArrowDown', 'Enter']) {
        list.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
      }
    });
    await expect(page.locator('.ipa-tab .ipa-title')).toHaveText('Short audit');
  });
});

test.describe('large', () => {
  let lab: Lab;
  test.beforeAll(async () => {
    test.setTimeout(300_000);
    lab = await Lab.start();
    fill(lab, Number(process.env['IPYAGENT_UI_SESSIONS'] ?? 2000), 20);
  });
  test.afterAll(async () => lab.stop());

  test('thousands of sessions scroll smoothly, and few of them are in the page', async ({ page }) => {
    await lab.visit(page, 'lab?reset');
    await command(page, 'ipyagent:show-panel');
    await expect(page.locator('.ipa-row').first()).toBeVisible();
    await page.waitForTimeout(3000);
    const scroll = (node: HTMLElement | SVGElement): Promise<{ frames: number; worst: number; rows: number }> =>
      new Promise(resolve => {
        const times: number[] = [];
        const step = (time: number): void => {
          times.push(time);
          node.scrollTop += 900;
          if (times.length < 90) {
            requestAnimationFrame(step);
          } else {
            const gaps = times.slice(1).map((each, at) => each - (times[at] ?? 0));
            resolve({ frames: 1000 / (gaps.reduce((sum, gap) => sum + gap, 0) / gaps.length), worst: Math.max(...gaps), rows: node.querySelectorAll('.ipa-row').length });
          }
        };
        node.scrollTop = 0;
        requestAnimationFrame(step);
      });
    await expect(async () => {
      const measured = await page.locator('.ipa-rows').evaluate(scroll);
      console.log('scrolling:', measured);
      expect(measured.rows).toBeLessThan(60);
      expect(measured.frames).toBeGreaterThan(30);
    }).toPass({ timeout: PATIENCE });
    await shot(page, 'panel-many');
  });
});

test.describe('10,000 events', () => {
  let lab: Lab;
  test.beforeAll(async () => {
    test.setTimeout(300_000);
    lab = await Lab.start();
    fill(lab, 1, 10_000);
  });
  test.afterAll(async () => lab.stop());

  test('are drawn at once and scrubbed smoothly', async ({ page }) => {
    await lab.visit(page, 'lab?reset');
    await command(page, 'ipyagent:show-panel');
    await page.locator('.ipa-row').first().click();
    const lanes = page.locator('.ipa-tab .ipa-lanes');
    await expect(page.locator('.ipa-tab .ipa-count')).toHaveText(/^10,0\d\d events$/);
    const scrub = (node: HTMLElement | SVGElement): Promise<{ paint: number; frames: number }> =>
      new Promise(resolve => {
        const width = node.clientWidth;
        const times: number[] = [];
        const box = node.getBoundingClientRect();
        const at = (x: number, type: string): void =>
          void node.dispatchEvent(new PointerEvent(type, { bubbles: true, pointerId: 1, clientX: box.left + x, clientY: box.top + 40 }));
        node.setPointerCapture = () => undefined;
        const began = performance.now();
        const step = (time: number): void => {
          times.push(time);
          at(100 + ((width - 120) * times.length) / 90, times.length === 1 ? 'pointerdown' : 'pointermove');
          if (times.length < 90) {
            requestAnimationFrame(step);
          } else {
            resolve({ paint: performance.now() - began, frames: (1000 * 89) / ((times.at(-1) ?? 0) - (times[0] ?? 0)) });
          }
        };
        requestAnimationFrame(step);
      });
    await expect(async () => {
      const measured = await lanes.evaluate(scrub);
      console.log('scrubbing:', measured);
      expect(measured.frames).toBeGreaterThan(30);
    }).toPass({ timeout: PATIENCE });
    const painted = await page.evaluate(() => performance.getEntriesByName('ipyagent:timeline-drawn').map(entry => entry.duration));
    console.log('drawing in ms:', painted.map(each => Math.round(each)));
    expect(Math.max(...painted)).toBeLessThan(200);
    await shot(page, 'timeline-10000');
  });
});

test('everything that a timeline can show, zoomed and filtered', async ({ page }) => {
  const lab = await Lab.start();
  try {
    const id = rich(lab);
    await lab.visit(page, 'lab?reset');
    await command(page, 'ipyagent:show-panel');
    await command(page, 'ipyagent:open', { session_id: id });
    const tab = page.locator('.ipa-tab .ipa-card');
    await expect(tab.locator('.ipa-ask')).toContainText('delete_files');
    await expect(tab.locator('.ipa-branch-name')).toHaveText('skip ctypes');
    for (const lane of ['stages', 'activities', 'model', 'tools', 'approvals', 'task']) {
      await expect(tab.locator('.ipa-kinds')).toContainText(lane);
    }
    await shot(page, 'timeline-rich');
    await tab.locator('.ipa-lanes').hover({ position: { x: 500, y: 40 } });
    await page.keyboard.down('Control');
    await page.mouse.wheel(0, -300);
    await page.mouse.wheel(0, -300);
    await page.keyboard.up('Control');
    await expect(button(tab, 'fit')).toBeVisible();
    await button(tab, 'fit').click();
    await expect(button(tab, 'fit')).toHaveCount(0);
    await tab.getByLabel('failures only').check();
    await expect(tab.locator('.ipa-event')).toHaveCount(2);
    await dark(page);
    await tab.getByLabel('failures only').uncheck();
    await shot(page, 'timeline-rich-dark');
    await button(tab, 'denied').click();
    await expect(tab.locator('.ipa-ask')).toHaveCount(0);
  } finally {
    await lab.stop();
  }
});

test('without a server part: one honest line and the notebook’s own text', async ({ page }) => {
  const lab = await Lab.start(["--ServerApp.jpserver_extensions={'ipyagent_lab': False}"]);
  try {
    await lab.open(page, 'alone.ipynb', [SETUP, `handle = start("audit --n 2")\nshow(handle, "audit: completed, 8 activities")`]);
    await runAll(page);
    await expect(card(page)).toContainText('the server part of ipyagent is not running here');
    await expect(card(page)).toContainText('audit: completed, 8 activities');
    expect(await button(card(page), 'cancel').count()).toBe(0);
    await command(page, 'ipyagent:show-panel');
    await expect(page.locator('.ipa-trouble')).toContainText('jupyter server extension list');
    await shot(page, 'missing-server');
  } finally {
    await lab.stop();
  }
});
