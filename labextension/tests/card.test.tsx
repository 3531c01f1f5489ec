import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';
import { render } from 'preact-render-to-string';

import { bodyOf } from '../src/desk.js';
import { isSameNotebook, isUndefined, rerunCode, resumeCode, setupOf, setupText } from '../src/lab/resume.js';
import { isLong, reflow } from '../src/view/ask.js';
import { answersOf, buttonsOf } from '../src/view/buttons.js';
import { CardView, type CardProps } from '../src/view/card.js';
import { aged, facts, footFacts, headline, progress } from '../src/view/facts.js';
import { isRepeat } from '../src/view/press.js';
import { announcement } from '../src/view/states.js';
import { HOSTILE, aCard, aShown, anAsk } from './fixtures.js';

const NONE: ReadonlySet<string> = new Set();
const OPEN = { why: '', hint: '' };

function html(more: Partial<CardProps> = {}): string {
  return render(
    <CardView shown={aShown()} age={0} link="open" who="the Jupyter server" doing={NONE} door={OPEN} notice={null} act={() => undefined} load={() => Promise.resolve('')} {...more} />
  );
}

const visible = (markup: string): string => markup.replace(/<[^>]*>/g, ' ').replace(/\s+/g, ' ');

test('a running card shows every field of the monitoring panel', () => {
  const seen = visible(html());
  for (const part of [
    'Audit of the standard library', // R190
    'kx2m9qv4tz.1', // R191
    'running 8 min 32 s', // R192
    '126 of 194 64 %', // R193
    'stage 2.3 asyncio, email, json', // R194
    'now analyse:email (attempt 2)', // R195
    'about 4 min left', // R196
    'CPU 45 %', // R197
    'memory 1.2 of 6.8 GB 17 %', // R198
    'disk 28 %', // R199
    'checkpoint 40 s ago 2.2', // R200
    'next in 4 min', // R201
    '18.2 k tokens · $0.31',
    'sync · every result is on disk'
  ]) {
    assert.ok(seen.replace(/ +/g, ' ').includes(part), `${part}\n${seen}`);
  }
  assert.match(html(), /aria-valuenow="64"/);
});

test('the clock of the page goes on between two pictures', () => {
  const later = aged(aCard(), 100);
  assert.deepEqual([later.elapsed_s, later.remaining_s, later.checkpoint_age_s, later.checkpoint_next_s], [612.4, 150, 140, 140]);
  assert.equal(aged(aCard({ state: 'completed' }), 100).elapsed_s, 512.4);
});

test('nobody knows how many: no percentage and no guess', () => {
  const card = aCard({ total: null, remaining_s: null, remaining_basis: 'nobody has said how many' });
  assert.equal(progress(card), null);
  assert.ok(facts(card).some(fact => fact.strong === 'unknown' && fact.after === 'time left'));
  assert.ok(!facts(card).some(fact => fact.strong.includes('%') || fact.after.includes('%')));
});

test('what is not measured is left out, not shown as zero', () => {
  const ids = footFacts(aCard({ cpu_percent: null, memory: null, disk_used_percent: null, tokens: 0, cost_usd: 0 })).map(fact => fact.id);
  assert.deepEqual(ids, ['checkpoint']);
  assert.equal(footFacts(aCard({ unpriced: 2 })).at(-1)?.after, 'tokens · at least $0.31');
  assert.equal(footFacts(aCard({ unpriced: 2, cost_usd: 0 })).at(-1)?.after, 'tokens · cost unknown');
});

test('a button that may not be pressed says why, in sight of a screen reader too', () => {
  const ended = aShown({ state: 'completed', actions: { pause: 'over', resume: 'it is completed, and an ended task never changes', cancel: 'over', log: '' } });
  const markup = html({ shown: ended });
  assert.match(markup, /data-ipa="resume"[^>]*title="it is completed, and an ended task never changes"[^>]*aria-disabled="?true/);
  assert.match(markup, /role="tooltip">it is completed/);
});

test('the first button is Pause, then Stop now, then Resume', () => {
  const first = (card: ReturnType<typeof aCard>, door = OPEN): string => {
    const button = buttonsOf(card, NONE, door)[0];
    return `${button?.id} ${button?.why}`;
  };
  assert.equal(first(aCard()), 'pause ');
  assert.equal(first(aCard({ pausing: true, headline: 'running, pausing: waiting for 3 open activities' })), 'stop ');
  const interrupted = aCard({ state: 'interrupted', actions: { pause: 'no', resume: '', cancel: '', log: '' } });
  assert.equal(first(interrupted), 'resume ');
  assert.equal(first(interrupted, { why: 'open its notebook', hint: '' }), 'resume open its notebook');
  assert.equal(buttonsOf(aCard(), new Set(['pause']), OPEN)[0]?.label, 'Pausing…');
});

test('a recovery is told in its own sentence, and an older server may not know it', () => {
  assert.match(visible(html({ shown: aShown({ recoveries: 2, recovery: 'continued at activity 7; 3 are not repeated' }) })), /3 are not repeated \(recovered 2 times\)/);
  const older = { ...aCard() } as Partial<ReturnType<typeof aCard>>;
  delete older.recovery;
  assert.ok(html({ shown: { ...aShown(), card: older as ReturnType<typeof aCard> } }).includes('Audit'));
});

test('draining is told', () => {
  assert.deepEqual(headline(aCard({ pausing: true, headline: 'running, pausing: waiting for 3 open activities' })), {
    state: 'pausing',
    why: 'waiting for 3 open activities'
  });
});

test('a question is answered with the digest of what was read, for the task that was seen', () => {
  const deed = { kind: 'answer', approval_id: 'a1', answer: 'approved', digest: 'd1', choice: null } as const;
  assert.deepEqual(bodyOf(aCard({ state: 'suspended' }), deed), {
    action: 'answer',
    task_id: 'kx2m9qv4tz.1',
    args: { approval_id: 'a1', answer: 'approved', digest: 'd1' }
  });
  assert.deepEqual(bodyOf(aCard(), { kind: 'stop' }), { action: 'pause', task_id: 'kx2m9qv4tz.1', expects: ['running'], args: {} });
});

test('choices become buttons, and none is made to look right', () => {
  assert.deepEqual(
    answersOf(['merge', 'squash'], 'approval').map(answer => [answer.label, answer.answer, answer.primary]),
    [
      ['merge', 'approved', false],
      ['squash', 'approved', false],
      ['Deny', 'denied', false]
    ]
  );
});

test('a long question is not answered before it was shown whole', () => {
  const ask = anAsk({ details: JSON.stringify({ paths: Array.from({ length: 400 }, (_, at) => `folder-${at}/`) }) });
  assert.ok(isLong(ask));
  const markup = html({ shown: aShown({ state: 'suspended', asks: [ask] }) });
  assert.match(markup, /data-ipa="approved"[^>]*title="read the rest of it first"/);
  assert.ok(!markup.includes('folder-399'));
});

test('a question whose details are kept elsewhere is not answered before they came', () => {
  const ask = anAsk({ kind: 'tool', details: '{"tool":"write_file","arguments":{"text":"a', details_blob: 'b'.repeat(64) });
  const markup = html({ shown: aShown({ state: 'suspended', asks: [ask] }) });
  assert.match(markup, /data-ipa="approved"[^>]*title="read the rest of it first"/);
  assert.match(markup, /data-ipa="denied"[^>]*title="read the rest of it first"|data-ipa="deny"[^>]*title="read the rest of it first"/);
  assert.match(markup, /Show all of it/);
});

test('laying out details adds white space and changes nothing else', () => {
  const raw = '{"a":1.0,"a":12345678901234567890,"text":"x, {y}: \\" [z]","list":[1,[],{}],"more":"' + 'w'.repeat(90) + '"}';
  const squeezed = (text: string): string => text.replace(/\s/g, '');
  assert.equal(squeezed(reflow(raw)), squeezed(raw));
  assert.deepEqual(JSON.parse(reflow(raw)), JSON.parse(raw));
  assert.equal(reflow('{"a":1}'), '{"a":1}');
});

test('hostile text is text in every field', () => {
  const shown = aShown(
    {
      title: HOSTILE,
      target: HOSTILE,
      state: 'suspended',
      headline: `suspended: ${HOSTILE}`,
      stage: HOSTILE,
      stage_name: HOSTILE,
      now: [HOSTILE, HOSTILE],
      text: HOSTILE,
      remaining_basis: HOSTILE,
      checkpoint_label: HOSTILE,
      durability: HOSTILE,
      risk: HOSTILE,
      alarms: [HOSTILE],
      actions: { pause: HOSTILE, resume: HOSTILE, cancel: HOSTILE, log: '' },
      asks: [anAsk({ question: HOSTILE, details: JSON.stringify(HOSTILE), if_ignored: HOSTILE, choices: [HOSTILE] })]
    },
    HOSTILE
  );
  const markup = html({ shown, notice: { text: HOSTILE, hint: HOSTILE, bad: true }, door: { why: HOSTILE, hint: HOSTILE } });
  assert.ok(!/<script|<img|onerror="|href=/i.test(markup), markup);
  // the override is nowhere but in attributes that a browser shows as plain tooltips
  assert.ok(!visible(markup).includes('\u202e'));
  assert.ok(!visible(markup).includes('\u001b'));
});

test('no source file writes HTML or follows an address from data', () => {
  const root = new URL('../../../src/', import.meta.url);
  for (const name of readdirSync(root, { recursive: true, encoding: 'utf8' })) {
    if (/\.tsx?$/.test(name)) {
      const source = readFileSync(new URL(name, root), 'utf8');
      assert.ok(!/innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|\beval\(|href=/.test(source), name);
      assert.ok(!/\bas any\b|: any\b/.test(source), name);
    }
  }
});

test('what is news is said aloud once, and what ticks is not', () => {
  const old = aShown();
  assert.equal(announcement(null, old), '');
  assert.equal(announcement(old, aShown({ done: 127 })), '');
  assert.match(announcement(old, aShown({ state: 'suspended', asks: [anAsk()] })), /needs you: Delete the build folders\?/);
  assert.match(announcement(old, aShown({ state: 'lost', headline: 'stopped at activity 3' })), /stopped at activity 3/);
});

test('the second click of a double click is none', () => {
  assert.ok(isRepeat({ detail: 2 }) && !isRepeat({ detail: 1 }) && !isRepeat({ detail: 0 }));
});

test('only an id becomes code for a kernel', () => {
  assert.equal(resumeCode('kx2m9qv4tz'), '%load_ext ipyagent\n%agent resume kx2m9qv4tz --bg');
  assert.equal(rerunCode('kx2m9qv4tz'), '%load_ext ipyagent\n%agent rerun kx2m9qv4tz --yes --bg');
  assert.ok(resumeCode('x'.repeat(40)).includes('x'.repeat(40)));
  for (const bad of ['a', 'x'.repeat(41), 'KX2M9QV4TZ', 'kx2m\n!rm', 'kx2m --say x', '']) {
    assert.throws(() => resumeCode(bad));
  }
});

test('a notebook is recognised by the end of its path', () => {
  assert.ok(isSameNotebook('work/a.ipynb', '/home/me/work/a.ipynb'));
  assert.ok(isSameNotebook('RTC:work/a.ipynb', 'C:\\me\\work\\a.ipynb'));
  assert.ok(!isSameNotebook('a.ipynb', '/home/me/ba.ipynb'));
  assert.ok(!isSameNotebook('', '/home/me/a.ipynb'));
});

test('only the tagged code cells of a notebook are run to set it up', () => {
  const cell = (source: unknown, tags: unknown, cell_type = 'code'): object => ({ cell_type, source, metadata: { tags } });
  const notebook = { cells: [cell('a\nb', ['agent-setup']), cell(['c', 'd'], ['x', 'agent-setup']), cell('no', []), cell('md', ['agent-setup'], 'markdown'), cell('odd', 'agent-setup'), null] };
  assert.deepEqual(setupOf(notebook), ['a\nb', 'cd']);
  assert.equal(setupText(setupOf(notebook)), 'Its 2 cells tagged agent-setup are run, which begin with: a | cd');
  assert.deepEqual(setupOf(null), []);
  assert.ok(isUndefined(new Error("'audit', the workflow of session k, is not defined here")) && !isUndefined('x'));
});
