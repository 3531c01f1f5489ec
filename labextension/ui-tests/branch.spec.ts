/** Forks, reruns and replays from a page, and what the rows of the panel can do. */
import { expect, test, type Page } from '@playwright/test';

import { SETUP, free } from './cells.js';
import { Lab, button, card, command, dark, inSight, runAll, shot, toTop } from './lab.js';
import { rich } from './rich.js';

let lab: Lab;
test.beforeAll(async () => {
  lab = await Lab.start();
});
test.afterAll(async () => lab.stop());

/** Choose a command of a row's menu. */
async function choose(page: Page, title: string, label: string): Promise<void> {
  await page.locator('.ipa-row', { hasText: title }).first().click({ button: 'right' });
  await page.locator('.lm-Menu-itemLabel', { hasText: label }).click();
}

test('fork here: what stays is told first, the child is a branch, and both stand side by side', async ({ page }) => {
  const id = rich(lab);
  await lab.visit(page, 'lab?reset');
  await command(page, 'ipyagent:open', { session_id: id });
  const tab = page.locator('.ipa-tab .ipa-card');
  const row = tab.locator('.ipa-event', { hasText: 'checkpoint created' }).first();
  await toTop(tab.locator('.ipa-log'));
  await row.click();
  await expect(tab.locator('.ipa-past')).toContainText('at event');
  await button(tab, 'fork').click();
  const form = tab.locator('.ipa-form');
  await expect(form).toContainText('Still there from after that, and not undone (1):');
  await expect(form.locator('.ipa-effects')).toContainText('file report.md');
  await form.locator('textarea').fill('look at email only');
  await shot(page, 'fork-form');
  await button(form, 'fork-yes').click();
  await expect(form).toContainText('Forked into');
  await expect(form).toContainText('ipyagent resume'); // its workflow is in a module, lib
  await expect(tab.locator('.ipa-branch-name')).toHaveCount(2);
  await button(form, 'fork-close').click();
  await button(tab, 'compare').click();
  await expect(tab.locator('.ipa-compare')).toContainText('and part there');
  await expect(tab.locator('.ipa-both')).toContainText('not there');
  await inSight(tab.locator('.ipa-compare'));
  await shot(page, 'compare');
  await dark(page);
  await shot(page, 'compare-dark');
});

test('rerun from here runs the fork in the notebook’s kernel, and only what follows', async ({ page }) => {
  await lab.open(page, 'again.ipynb', [SETUP, free('audit --n 4 --pause 0.05 --title "Once more"')]);
  await runAll(page);
  await expect(card(page)).toHaveAttribute('data-state', 'completed');
  const open = card(page);
  await button(open, 'log').click();
  const { rows } = await lab.json<{ rows: { session_id: string }[] }>('ipyagent/api/sessions?q=Once');
  const id = rows[0]?.session_id ?? '';
  await toTop(open.locator('.ipa-log'));
  await open.locator('.ipa-event', { hasText: 'activity started' }).nth(1).click();
  await button(open, 'rerun-here').click();
  const form = open.locator('.ipa-form');
  await expect(form).toContainText('It costs again, and results may differ');
  await shot(page, 'rerun-form');
  await button(form, 'fork-yes').click();
  await expect(form).toContainText('it runs in the kernel of the notebook');
  const child = (await lab.json<{ children: string[] }>(`ipyagent/api/sessions/${id}`)).children[0] ?? '';
  const stateOf = async (session: string): Promise<string> =>
    (await lab.json<{ shown: { card: { state: string } } }>(`ipyagent/api/sessions/${session}`)).shown.card.state;
  await expect.poll(() => stateOf(child)).toBe('completed');

  // the whole task again, from the panel
  await command(page, 'ipyagent:show-panel');
  await choose(page, 'Once more', 'Rerun…');
  await expect(page.locator('.jp-Dialog')).toContainText('results may differ');
  await page.locator('.jp-Dialog button', { hasText: 'Rerun' }).click();
  await expect(page.locator('.ipa-row', { hasText: '(rerun)' })).toHaveCount(1);
});

test('a row can be renamed, replayed, forked, filtered, and opens its notebook at the cell', async ({ page }) => {
  await lab.open(page, 'rows.ipynb', [SETUP, free('tidy --title "Sweep the yard"')]);
  await runAll(page);
  await expect(card(page)).toHaveAttribute('data-state', 'suspended');
  await command(page, 'docmanager:save');
  await command(page, 'ipyagent:show-panel');
  await choose(page, 'Sweep the yard', 'Rename…');
  await page.locator('.jp-Dialog input').fill('Sweep the court');
  await page.keyboard.press('Enter');
  await expect(page.locator('.ipa-row', { hasText: 'Sweep the court' })).toHaveCount(1);
  await choose(page, 'Sweep the court', 'Replay');
  const tab = page.locator('.ipa-tab:not(.lm-mod-hidden) .ipa-card');
  await expect(tab.locator('.ipa-past')).toContainText('at event');
  await expect(tab.locator('.ipa-past')).toHaveCount(0); // it has come to its end, which is now
  await choose(page, 'Sweep the court', 'Fork…');
  await expect(tab.locator('.ipa-form')).toContainText('Nothing outside was changed after that.');
  await page.keyboard.press('Escape');
  await expect(tab.locator('.ipa-form')).toHaveCount(0);
  await command(page, 'application:close-all');
  await choose(page, 'Sweep the court', 'Open Notebook');
  await expect(page.locator('.jp-Notebook .jp-Cell.jp-mod-active')).toContainText('tidy');
  await button(page.locator('.ipa-panel'), 'filter').click();
  await page.locator('.ipa-filters').getByLabel('state').selectOption('suspended');
  await expect(page.locator('.ipa-row', { hasText: 'Once more' })).toHaveCount(0);
  await expect(page.locator('.ipa-row', { hasText: 'Sweep the court' })).toHaveCount(1);
  await shot(page, 'panel-filter');
  await choose(page, 'Sweep the court', 'Export…');
  const download = page.waitForEvent('download');
  await page.locator('.jp-Dialog button', { hasText: 'Export' }).click();
  expect((await download).suggestedFilename()).toMatch(/\.ipyagent\.zip$/);
  await choose(page, 'skip ctypes', 'Delete…');
  await expect(page.locator('.jp-Dialog')).toContainText('This cannot be undone.');
  await page.locator('.jp-Dialog button', { hasText: 'Delete' }).click();
  await expect(page.locator('.ipa-row', { hasText: 'skip ctypes' })).toHaveCount(0);
});
