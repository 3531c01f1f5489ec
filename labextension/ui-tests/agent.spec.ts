/** An agent in the card: its streamed answer, its tool calls, and an approval with edited arguments. */
import { expect, test } from '@playwright/test';

import { Agent } from './agent.js';
import { Lab, button, card, command, dark, inSight, runAll, shot } from './lab.js';

let lab: Lab;
let agent: Agent;
test.beforeAll(async () => {
  lab = await Lab.start();
});
test.afterAll(async () => {
  agent.stop();
  await lab.stop();
});

const showing = (id: string): string => `from IPython.display import display
display({"application/vnd.ipyagent.task+json": {"session_id": "${id}", "task_id": "${id}.1"}, "text/plain": "an agent"}, raw=True)`;

test('a streamed answer is Markdown, the card does not jump, and an edited call is approved', async ({ page }) => {
  await lab.visit(page, 'lab?reset');
  agent = await Agent.start(lab);
  const asked: string[] = [];
  page.on('request', request => asked.push(request.url()));
  await lab.open(page, 'agent.ipynb', [showing(agent.id)]);
  await runAll(page);
  const talk = card(page).locator('.ipa-talk');
  await expect(talk).toContainText('I count them first.');
  await expect(talk.locator('.ipa-streaming h2')).toContainText('What the modules say');
  await expect(talk.locator('.ipa-streaming table')).toBeVisible();
  const heights = await card(page).evaluate(
    node =>
      new Promise<number[]>(resolve => {
        const seen: number[] = [];
        const timer = setInterval(() => seen.push(node.getBoundingClientRect().height) >= 25 && (clearInterval(timer), resolve(seen)), 100);
      })
  );
  expect(new Set(heights.map(Math.round)).size, `${heights.join(' ')}`).toBe(1);
  await shot(page, 'agent-streaming');
  await agent.enough();
  await expect(card(page)).toHaveAttribute('data-state', 'suspended');
  await expect(talk.locator('.ipa-by-assistant .cm-s-jupyter, .ipa-by-assistant pre code span').first()).toBeAttached(); // highlighted
  expect(await card(page).evaluate(node => Math.round(node.querySelector('.ipa-talk')?.clientHeight ?? 0))).toBe(280);
  await talk.locator('summary', { hasText: 'sql(' }).click();
  await expect(talk.locator('.ipa-grid')).toContainText('asyncio');
  await talk.locator('summary', { hasText: 'run_python(' }).click();
  await expect(talk.locator('.ipa-drawn img[src^="data:image/png"]')).toBeAttached();
  await button(card(page), 'talk-whole').click();
  await shot(page, 'agent-done');
  expect(await page.evaluate(() => (window as unknown as { hacked?: number }).hacked)).toBeUndefined();
  expect(asked.filter(url => url.includes('example.invalid'))).toEqual([]);
  expect(await talk.locator('a[href^="javascript"]').count()).toBe(0);

  const ask = card(page).locator('.ipa-ask');
  await expect(ask).toContainText('irreversible');
  await page.waitForTimeout(500);
  await button(ask, 'edit').click();
  const area = ask.locator('textarea');
  await expect(ask.locator('.ipa-details')).toHaveCount(0); // the editor has its place
  await area.fill('{"paths": ["build/"');
  await expect(ask.locator('.ipa-edit-said')).toHaveClass(/ipa-bad/);
  await expect(button(ask, 'approved')).toHaveAttribute('aria-disabled', 'true');
  await area.fill('{"paths": ["build/"], "force": false}');
  await expect(ask.locator('.ipa-changes')).toContainText('paths[1]');
  await inSight(ask);
  await shot(page, 'agent-edit');
  await ask.getByLabel('always allow delete_files in this session').check();
  await button(ask, 'approved').click();
  await expect(ask).toHaveCount(0);
  const { events } = await lab.json<{ events: { event_type: string; payload: { args?: object } }[] }>(`ipyagent/api/sessions/${agent.id}/events`);
  const control = events.find(event => event.event_type === 'ControlRequested');
  expect(control?.payload.args).toMatchObject({ answer: 'approved', arguments: { paths: ['build/'], force: false }, always: true });
  await dark(page);
  await command(page, 'ipyagent:open', { session_id: agent.id });
  await inSight(page.locator('.ipa-tab .ipa-talk'));
  await shot(page, 'agent-dark');
});

/** Turns of a model, as a cell writes them into a file. */
const SCRIPT = `
turns = [
    {"say": "I look at the **numbers** first.\\n\\n| a | b |\\n|---|---|\\n| 1 | 2 |", "tokens_per_s": 30, "cost": 0.004,
     "usage": {"input": 120, "output": 30}, "call": [{"tool": "run_python", "args": {"code": "print('counted')\\n6 * 7"}}]},
    {"say": "It is **42**, and written down."},
]
import json
json.dump(turns, open("play.yaml", "w"))
`;

test('a real agent with a script: it streams, asks before it runs code, and runs what the person made of it', async ({ page }) => {
  const asks = '%%agent --model scripted:play.yaml --approve ask --bg\nWhat is the answer?';
  await lab.open(page, 'real.ipynb', [SCRIPT, '%load_ext ipyagent', asks]);
  await runAll(page);
  const ask = card(page).locator('.ipa-ask');
  await expect(ask).toContainText('run_python');
  await expect(card(page).locator('.ipa-talk strong')).toHaveText('numbers');
  await page.waitForTimeout(500);
  await button(ask, 'edit').click();
  await ask.locator('textarea').fill(JSON.stringify({ code: "open('answer.md', 'w').write('42'); print('as edited')" }));
  await expect(ask.locator('.ipa-changes')).toContainText('code');
  await shot(page, 'agent-real-edit');
  await button(ask, 'approved').click();
  await expect(card(page)).toHaveAttribute('data-state', 'completed');
  await expect(card(page).locator('.ipa-talk')).toContainText('It is 42, and written down.');
  expect((await lab.json<{ content: string }>('api/contents/answer.md')).content).toBe('42');
  await card(page).locator('summary', { hasText: 'run_python(' }).click();
  await expect(card(page).locator('.ipa-call-body').first()).toContainText('as edited');
  await shot(page, 'agent-real');
});

const LONG_SCRIPT = `
code = "print('as it was')\\n" + "# " + "x" * 40_000 + "\\nprint('the end of it')"
turns = [{"call": [{"tool": "run_python", "args": {"code": code}}]}, {"say": "Done."}]
import json
json.dump(turns, open("long.yaml", "w"))
`;

test('a call that is too long for the log is read whole before it is approved, and can be edited then', async ({ page }) => {
  const asks = '%%agent --model scripted:long.yaml --approve ask --bg\nRun it.';
  await lab.open(page, 'long.ipynb', [LONG_SCRIPT, '%load_ext ipyagent', asks]);
  await runAll(page);
  const ask = card(page).locator('.ipa-ask');
  await expect(ask.locator('.ipa-details')).toContainText('as it was');
  await expect(ask.locator('.ipa-details')).not.toContainText('the end of it');
  await expect(button(ask, 'approved')).toHaveAttribute('aria-disabled', 'true');
  await shot(page, 'agent-long');
  await button(ask, 'show-all').click();
  await expect(ask.locator('.ipa-details')).toContainText('the end of it');
  await expect(button(ask, 'edit')).not.toHaveAttribute('aria-disabled', 'true');
  await expect(ask).toContainText('always allow run_python in this session');
  await page.waitForTimeout(500); // a press in the first moments of a question counts for nothing
  await button(ask, 'approved').click();
  await expect(card(page)).toHaveAttribute('data-state', 'completed');
  await expect(card(page).locator('.ipa-talk')).toContainText('Done.');
});
