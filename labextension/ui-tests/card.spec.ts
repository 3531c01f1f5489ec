/** The card in the output of a cell: real JupyterLab, real kernels, real tasks. */
import { execFileSync } from 'node:child_process';
import { expect, test, type Page } from '@playwright/test';

import type { Page as ListPage, Row } from '../src/wire.js';
import { SETUP, busy, free, hostile } from './cells.js';
import { Lab, button, card, dark, inSight, kernelReady, runAll, shot, until } from './lab.js';

let lab: Lab;
let alerts: string[] = [];

test.beforeAll(async () => {
  lab = await Lab.start();
});
test.afterAll(async () => lab.stop());
test.beforeEach(({ page }) => {
  alerts = [];
  page.on('dialog', dialog => {
    alerts.push(dialog.message());
    void (dialog.type() === 'beforeunload' ? dialog.accept() : dialog.dismiss());
  });
});

const state = (page: Page, expected: string): Promise<void> => expect(card(page)).toHaveAttribute('data-state', expected);

async function rowOf(title: string): Promise<Row | undefined> {
  const list = await lab.json<ListPage>('ipyagent/api/sessions?limit=1000');
  return list.rows.find(row => row.title === title);
}

test('it appears, goes on and pauses while its cell keeps the kernel busy', async ({ page }) => {
  await lab.open(page, 'busy.ipynb', [SETUP, busy('audit --n 200 --title "Audit of the standard library"')]);
  await runAll(page);
  await state(page, 'running');
  await expect(card(page).locator('.ipa-title')).toHaveText('Audit of the standard library');
  const done = card(page).locator('.ipa-fact-done em');
  const first = await done.innerText();
  await expect(done).not.toHaveText(first);
  await shot(card(page), 'card-running');
  await button(card(page), 'pause').click();
  await state(page, 'interrupted');
  await expect(button(card(page), 'resume')).toHaveText(/Resume/);
  await expect(page.locator('.jp-InputPrompt').last()).toHaveText('[*]:'); // the cell still runs
  await shot(card(page), 'card-interrupted');
});

test('a card outlives a reload of the page in the middle of a run', async ({ page }) => {
  await lab.open(page, 'reload.ipynb', [SETUP, busy('audit --n 300 --title "Reloaded"')]);
  await runAll(page);
  await state(page, 'running');
  await page.waitForTimeout(500);
  await page.keyboard.press('Control+s');
  await page.waitForTimeout(1500);
  await page.reload();
  await state(page, 'running');
  const done = card(page).locator('.ipa-fact-done em');
  await expect(done).not.toHaveText(await done.innerText());
  await button(card(page), 'cancel').click();
  await button(card(page), 'cancel-yes').click();
  await state(page, 'cancelled');
  await expect(button(card(page), 'resume')).toHaveAttribute('aria-disabled', 'true');
  await button(card(page), 'resume').click({ force: true });
  await expect(card(page).locator('.ipa-told + .ipa-why')).toContainText('never changes');
  await shot(card(page), 'card-cancelled');
});

test('an answer is given once, with a double click too, and the task goes on', async ({ page }) => {
  await lab.open(page, 'ask.ipynb', [SETUP, free('tidy --title "Tidy up"')]);
  await runAll(page);
  await expect(card(page).locator('.ipa-ask')).toContainText('Delete the build folders?');
  await expect(card(page).locator('.ipa-ask')).toContainText('{"paths":["build/","dist/"]}');
  await page.waitForTimeout(600);
  await shot(card(page), 'card-ask');
  await button(card(page), 'approved').dblclick();
  await expect(card(page).locator('.ipa-ask')).toHaveCount(0);
  const row = await rowOf('Tidy up');
  const { events } = await lab.json<{ events: { event_type: string; actor?: string }[] }>(`ipyagent/api/sessions/${row?.session_id ?? ''}/events`);
  const answers = events.filter(event => event.event_type === 'ApprovalResolved');
  expect(answers.length).toBe(1);
  expect(answers[0]?.actor).toMatch(/^user:.*@server$/);
  if ((await card(page).getAttribute('data-state')) === 'suspended') {
    await button(card(page), 'resume').click();
  }
  await state(page, 'completed');
});

test('interrupted in a busy cell, resumed from the card when the kernel is free, with nothing done twice', async ({ page }) => {
  await lab.open(page, 'resume.ipynb', [SETUP, free('audit --n 30 --title "Resumed"')]);
  await runAll(page);
  await state(page, 'running');
  await page.waitForTimeout(1200);
  await button(card(page), 'pause').click();
  await state(page, 'interrupted');
  await button(card(page), 'resume').click();
  await state(page, 'running');
  await state(page, 'completed');
  const row = await rowOf('Resumed');
  const { events } = await lab.json<{ events: { event_type: string; activity_id?: string }[] }>(`ipyagent/api/sessions/${row?.session_id ?? ''}/events`);
  const finished = events.filter(event => event.event_type === 'ActivityCompleted').map(event => event.activity_id);
  expect(new Set(finished).size).toBe(finished.length);
  await button(card(page), 'timeline').click();
  await button(card(page), 'log').click();
  await page.waitForTimeout(500);
  await shot(card(page), 'card-completed-history');
});

test('kill -9 of the kernel: the card says lost, and by itself', async ({ page }) => {
  await lab.open(page, 'killed.ipynb', [SETUP, `import os; print("pid", os.getpid())`, busy('audit --n 500 --title "Killed"')]);
  await runAll(page);
  await state(page, 'running');
  const pid = /pid (\d+)/.exec(await page.locator('.jp-OutputArea-output').filter({ hasText: 'pid' }).first().innerText())?.[1];
  execFileSync('kill', ['-9', pid ?? '']);
  await expect(card(page)).toHaveAttribute('data-state', /lost|suspended/, { timeout: 10_000 });
  await expect(card(page)).toContainText('stopped at activity');
  await shot(card(page), 'card-lost');
  await page.locator('.jp-Dialog button', { hasText: /ok/i }).click({ timeout: 5000 }).catch(() => undefined);
  await kernelReady(page);
  await button(card(page), 'resume').click(); // the new kernel has no definitions yet
  await expect(card(page).locator('.ipa-notice')).toBeVisible();
  await shot(card(page), 'card-resume-refused');
});

test('a pause waits for what is open and says so; pressed again it stops that', async ({ page }) => {
  await lab.open(page, 'drain.ipynb', [SETUP, free('audit --n 3 --pause 60 --title "Slow to stop"')]);
  await runAll(page);
  await expect(card(page).locator('.ipa-fact-now')).toContainText('look:m0');
  await button(card(page), 'pause').dblclick(); // the second click must not be the second pause
  await expect(card(page).locator('.ipa-fact-state')).toContainText('pausing');
  await expect(card(page).locator('.ipa-headline')).toContainText('waiting for 1 open activit');
  await page.waitForTimeout(1000);
  await shot(card(page), 'card-draining');
  await state(page, 'running');
  await button(card(page), 'stop').click();
  await state(page, 'interrupted');
});

test('the magic itself puts the card into the cell, and its updates leave it standing', async ({ page }) => {
  await lab.open(page, 'magic.ipynb', [SETUP, '%agent run audit --n 60 --title "From the magic"']);
  await runAll(page);
  await state(page, 'running');
  await card(page).evaluate(node => node.setAttribute('data-same', 'yes'));
  await button(card(page), 'timeline').click();
  await page.waitForTimeout(3000);
  await expect(card(page)).toHaveAttribute('data-same', 'yes'); // not drawn anew
  await expect(card(page).locator('.ipa-lanes')).toBeVisible();
  await shot(page, 'magic');
  await button(card(page), 'cancel').click();
  await button(card(page), 'cancel-yes').click();
  await state(page, 'cancelled');
});

test('forks branch off the timeline and open from it', async ({ page }) => {
  await lab.open(page, 'fork.ipynb', [SETUP, free('audit --n 10 --title "With forks"')]);
  await runAll(page);
  await state(page, 'completed');
  const row = await rowOf('With forks');
  const { events } = await lab.json<{ events: { seq: number; event_type: string }[] }>(`ipyagent/api/sessions/${row?.session_id ?? ''}/events`);
  const at = events.filter(event => event.event_type === 'ActivityCompleted')[9]?.seq;
  await lab.post(`ipyagent/api/sessions/${row?.session_id ?? ''}/fork`, { at, title: 'skip ctypes' });
  await button(card(page), 'timeline').click();
  await expect(card(page).locator('.ipa-branch-name')).toHaveText('skip ctypes');
  await shot(card(page), 'card-fork');
  await card(page).locator('.ipa-branch-name').click();
  await expect(page.locator('.ipa-tab .ipa-title')).toBeVisible();
});

test('with the keyboard alone', async ({ page }) => {
  await lab.open(page, 'keys.ipynb', [SETUP, free('audit --n 400 --title "Keys"')]);
  await runAll(page);
  await state(page, 'running');
  await button(card(page), 'pause').focus();
  await page.keyboard.press('Enter');
  await state(page, 'interrupted');
  await expect(page.locator('.jp-Notebook.jp-mod-editMode')).toHaveCount(0); // Enter was the card's
  await button(card(page), 'cancel').focus();
  await page.keyboard.press('Space');
  await page.keyboard.press('Escape');
  await expect(button(card(page), 'cancel')).toBeVisible();
  await state(page, 'interrupted');
  await button(card(page), 'timeline').focus();
  await page.keyboard.press('Enter');
  await card(page).locator('.ipa-lanes').focus();
  await page.keyboard.press('Home');
  await expect(card(page).locator('.ipa-past')).toContainText('at event 1');
  await page.keyboard.press('ArrowRight');
  await expect(card(page).locator('.ipa-past')).toContainText('at event 2');
  await page.keyboard.press('Escape');
  await expect(card(page).locator('.ipa-past')).toHaveCount(0);
});

test('hostile text is text: in titles, questions, details, logs, and in forged outputs', async ({ page }) => {
  await lab.open(page, 'hostile.ipynb', [SETUP, hostile()]);
  await runAll(page);
  const ask = card(page).locator('.ipa-ask');
  await expect(ask).toContainText('<img src=x onerror=');
  await expect(card(page).locator('.ipa-title')).toContainText('<script>');
  await button(card(page), 'log').click();
  await expect(card(page).locator('.ipa-event').first()).toBeVisible();
  expect(await card(page).locator('script, img, a, iframe, object').count()).toBe(0);
  expect(await card(page).innerText()).not.toMatch(/[\u202e\u001b]/u);
  await shot(card(page), 'card-hostile');
  const forged = page.locator('.jp-OutputArea .ipa-card').last();
  await expect(forged).toContainText('does not name a task');
  expect(await page.evaluate(() => (window as unknown as { hacked?: number }).hacked)).toBeUndefined();
  expect(alerts).toEqual([]);
});

test('dark', async ({ page }) => {
  await lab.open(page, 'dark.ipynb', [SETUP, free('tidy --title "Tidy up at night"'), busy('audit --n 100 --title "Audit at night"')]);
  await dark(page);
  await runAll(page);
  const second = page.locator('.jp-OutputArea .ipa-card').nth(1);
  await until(async () => (await second.count()) === 1, 20_000, () => 'no second card');
  await button(second, 'timeline').click();
  await page.waitForTimeout(3000);
  await inSight(second);
  await shot(page, 'dark');
});
