/** Where a card may stand: an older task of a session, another store, a narrow window, many tabs, Notebook 7. */
import { execFileSync } from 'node:child_process';
import { expect, test } from '@playwright/test';

import { SETUP, busy, free } from './cells.js';
import { Lab, button, card, command, inSight, python, runAll, shot } from './lab.js';

let lab: Lab;
test.beforeAll(async () => {
  lab = await Lab.start();
});
test.afterAll(async () => lab.stop());

const hasNotebook7 = ((): boolean => {
  try {
    execFileSync(python, ['-P', '-c', 'import notebook'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
})();

test('each card shows its own task, also when the session has gone on to another', async ({ page }) => {
  await lab.open(page, 'two.ipynb', [SETUP, free('audit --n 2 --title First --session both'), 'handle.wait()\n' + free('tidy --title Second --session both')]);
  await runAll(page);
  const cards = page.locator('.jp-OutputArea .ipa-card');
  await expect(cards.nth(1)).toHaveAttribute('data-state', 'suspended');
  await expect(cards.nth(0)).toHaveAttribute('data-state', 'completed');
  await expect(cards.nth(0).locator('.ipa-title')).toHaveText('First');
  await expect(cards.nth(1).locator('.ipa-title')).toHaveText('Second');
  await expect(button(cards.nth(0), 'cancel')).toHaveAttribute('aria-disabled', 'true');
});

test('a session of another store: one honest line and what was saved', async ({ page }) => {
  const foreign = `from IPython.display import display
display({"application/vnd.ipyagent.task+json": {"session_id": "zzzzzzzzzz", "task_id": "zzzzzzzzzz.1"}, "text/plain": "audit: completed"}, raw=True)`;
  await lab.open(page, 'foreign.ipynb', [foreign]);
  await runAll(page);
  await expect(card(page)).toContainText('does not have this session');
  await expect(card(page)).toContainText('audit: completed');
  await shot(card(page), 'card-foreign');
});

test('in a narrow window nothing is cut off that can be pressed', async ({ page }) => {
  await page.setViewportSize({ width: 620, height: 900 });
  await lab.open(page, 'narrow.ipynb', [SETUP, free('tidy --title "A question in a narrow place"'), busy('audit --n 100 --title "Audit of the standard library, all of it"')]);
  await runAll(page);
  const last = page.locator('.jp-OutputArea .ipa-card').last();
  await expect(last).toHaveAttribute('data-state', 'running');
  await command(page, 'application:toggle-left-area');
  await button(last, 'timeline').click();
  await inSight(last);
  await page.waitForTimeout(1500);
  await shot(page, 'narrow');
  for (const name of ['pause', 'cancel', 'log', 'timeline']) {
    const box = await button(last, name).boundingBox();
    expect((box?.x ?? 1e9) + (box?.width ?? 0)).toBeLessThanOrEqual(620);
  }
});

test('eight tabs follow the same task', async ({ page, context }) => {
  test.setTimeout(180_000);
  await lab.open(page, 'tabs.ipynb', [SETUP, free('audit --n 900 --pause 0.1 --title "Seen by many"')]);
  await runAll(page);
  await expect(card(page)).toHaveAttribute('data-state', 'running');
  await page.evaluate(() => (window as unknown as { jupyterapp: { commands: { execute(id: string): Promise<void> } } }).jupyterapp.commands.execute('docmanager:save'));
  const tabs = [page];
  for (let at = 1; at < 8; at++) {
    const tab = await context.newPage();
    await lab.visit(tab, `lab/workspaces/tab-${at}/tree/tabs.ipynb?reset`);
    tabs.push(tab);
  }
  for (const tab of tabs) {
    await expect(card(tab)).toHaveAttribute('data-state', 'running');
  }
  await button(card(page), 'pause').click();
  for (const tab of tabs) {
    await expect(card(tab)).toHaveAttribute('data-state', 'interrupted', { timeout: 10_000 });
  }
});

test('in Notebook 7', async ({ page }) => {
  test.skip(!hasNotebook7, 'Notebook 7 is not installed here');
  await lab.open(page, 'seven.ipynb', [SETUP, busy('audit --n 100 --title "In Notebook 7"')]);
  await page.goto(`${lab.url}notebooks/seven.ipynb`);
  await page.locator('.jp-Notebook .jp-Cell').first().waitFor();
  await page.waitForTimeout(2000);
  await page.locator('.jp-Cell .cm-content').first().click();
  await page.keyboard.press('Control+Enter');
  await page.locator('.jp-Cell .cm-content').nth(1).click();
  await page.keyboard.press('Control+Enter');
  await expect(card(page)).toHaveAttribute('data-state', 'running');
  await shot(page, 'notebook7');
  await page.locator('.lm-MenuBar-itemLabel', { hasText: 'Agents' }).click();
  await page.locator('.lm-Menu-itemLabel', { hasText: 'Show Agent Sessions' }).click();
  await expect(page.locator('.ipa-row', { hasText: 'In Notebook 7' })).toBeVisible();
  await shot(page, 'notebook7-panel');
  await button(card(page), 'pause').click();
  await expect(card(page)).toHaveAttribute('data-state', 'interrupted');
});
