/** The card as a widget: the comm carries it, in a layout of ipywidgets, with a cell running beside it. */
import { expect, test } from '@playwright/test';

import { Agent } from './agent.js';
import { SETUP } from './cells.js';
import { Lab, button, dark, runAll, shot } from './lab.js';

let lab: Lab;
let agent: Agent | null = null;

test.beforeAll(async () => {
  lab = await Lab.start();
});
test.afterAll(async () => {
  agent?.stop();
  await lab.stop();
});

const TASK = `
import ipyagent, ipywidgets
handle = start('audit --n 60 --title "Audit in a widget"')
ipywidgets.HBox([handle.widget(), ipywidgets.Label("beside it")])`;
const BUSY = 'from pathlib import Path\nwhile not Path("free").exists(): time.sleep(0.1)';
const ASK = `
question = start('tidy --title "Tidy up"')
question.widget()`;

test('in a layout it is live and obeyed while a cell runs, goes on in its kernel, and is answered', async ({ page }) => {
  const wrong: string[] = [];
  page.on('pageerror', error => wrong.push(error.message));
  await lab.open(page, 'widget.ipynb', [SETUP, TASK, BUSY, ASK]);
  await runAll(page);
  const box = page.locator('.jp-OutputArea .widget-hbox');
  const card = box.locator('.ipa-card');
  await expect(card).toHaveAttribute('data-state', 'running');
  await expect(box).toContainText('beside it');
  const done = card.locator('.ipa-fact-done em');
  await expect(done).not.toHaveText(await done.innerText());
  await shot(box, 'widget-running');
  await button(card, 'pause').click();
  await expect(card).toHaveAttribute('data-state', 'interrupted');
  await expect(page.locator('.jp-InputPrompt').nth(2)).toHaveText('[*]:'); // that cell still runs
  await button(card, 'resume').click();
  await expect(card).toHaveAttribute('data-state', 'running');
  await button(card, 'timeline').click();
  await expect(card.locator('canvas').first()).toBeVisible();
  await page.waitForTimeout(500);
  await shot(box, 'widget-timeline');
  await button(card, 'cancel').click();
  await button(card, 'cancel-yes').click();
  await expect(card).toHaveAttribute('data-state', 'cancelled');
  lab.touch('free');
  const asking = page.locator('.jp-OutputArea .ipa-card').last();
  await expect(asking.locator('.ipa-ask')).toContainText('Delete the build folders?');
  await page.waitForTimeout(600); // a question that has just come takes no answer yet
  await dark(page);
  await shot(asking, 'widget-ask-dark');
  await button(asking, 'approved').click();
  await expect(asking).toHaveAttribute('data-state', 'completed');
  expect(wrong).toEqual([]);
});

test('what an agent says is Markdown that fetches and runs nothing, and a call is approved with other arguments', async ({ page }) => {
  await lab.visit(page, 'lab?reset');
  agent = await Agent.start(lab);
  const asked: string[] = [];
  page.on('request', request => asked.push(request.url()));
  await lab.open(page, 'agent.ipynb', [`%load_ext ipyagent\nimport ipyagent\nipyagent.widget("${agent.id}")`]);
  await runAll(page);
  const card = page.locator('.jp-OutputArea .ipa-card').first();
  const talk = card.locator('.ipa-talk');
  await expect(talk.locator('.ipa-streaming h2')).toContainText('What the modules say');
  await expect(talk.locator('.ipa-streaming table')).toBeVisible();
  await agent.enough();
  await expect(card).toHaveAttribute('data-state', 'suspended');
  await expect(talk.locator('.ipa-by-assistant h2')).toContainText('What the modules say');
  await expect(talk.locator('.ipa-by-assistant .ipa-drawn pre')).toContainText(/def share\(module\):\s+return/);
  await expect(talk.locator('.ipa-by-assistant .ipa-drawn pre .tok-keyword').first()).toHaveText('def');
  expect(await talk.locator('a[href], script, img:not([src^="data:"])').count()).toBe(0);
  await talk.locator('summary', { hasText: 'run_python(' }).click();
  await expect(talk.locator('.ipa-drawn img[src^="data:image/png"]')).toBeAttached();
  await button(card, 'talk-whole').click();
  await shot(page, 'widget-agent');
  await button(card, 'edit').click();
  await card.locator('.ipa-ask textarea').fill('{"paths": ["build/"], "force": false}');
  await button(card, 'approved').click();
  await expect(card.locator('.ipa-ask')).toHaveCount(0);
  expect(await page.evaluate(() => (window as unknown as { hacked?: number }).hacked)).toBeUndefined();
  expect(asked.filter(url => url.includes('example.invalid'))).toEqual([]);
});
