import assert from 'node:assert/strict';
import { test } from 'node:test';
import { render } from 'preact-render-to-string';

import { bodyOf } from '../src/desk.js';
import { AskView } from '../src/view/ask.js';
import { callButtons } from '../src/view/buttons.js';
import { callOf, changesOf, judged, textOf } from '../src/view/edit.js';
import { Editor } from '../src/view/editor.js';
import { HOSTILE, aCard, anAsk } from './fixtures.js';

const aCall = (details: unknown, more = {}): ReturnType<typeof anAsk> => anAsk({ kind: 'tool', details: JSON.stringify(details), ...more });
const never = (): Promise<string> => Promise.reject(new Error('nothing is elsewhere'));
const PATHS = { tool: 'delete_files', arguments: { paths: ['build/', 'dist/'], force: false }, effect: 'irreversible' };

test('only a tool call with named arguments can be edited', () => {
  assert.equal(callOf(anAsk()), null);
  assert.deepEqual(callOf(aCall(PATHS)), { tool: 'delete_files', effect: 'irreversible', arguments: PATHS.arguments, why: '' });
  assert.match(callOf(aCall({ tool: 'x', arguments: [1] }))?.why ?? '', /not named values/);
  assert.match(callOf(anAsk({ kind: 'tool', details: 'not json' }))?.why ?? '', /not named values/);
});

test('numbers that a browser would round are not edited here', () => {
  const raw = '{"tool":"pay","arguments":{"account":12345678901234567890}}';
  assert.match(callOf(anAsk({ kind: 'tool', details: raw }))?.why ?? '', /more digits/);
  assert.equal(callOf(anAsk({ kind: 'tool', details: '{"tool":"t","arguments":{"text":"12345678901234567890","x":0.000000000012,"y":1e300}}' }))?.why, '');
  assert.match(judged('{"account": 12345678901234567890}', {}).problem, /more digits/);
  assert.equal(judged('{"account": 12345678901234567890}', {}).value, null);
});

test('what is typed has to be an object, and the place of a mistake is told', () => {
  assert.match(judged('{\n  "a": 1,\n  b: 2\n}', {}).problem, /line 3|property name/);
  assert.match(judged('[1]', {}).problem, /are an object/);
  assert.deepEqual(judged(textOf(PATHS.arguments), PATHS.arguments), { value: PATHS.arguments, problem: '', changes: [] });
});

test('every change is told by its path, and nothing else is', () => {
  assert.deepEqual(changesOf(PATHS.arguments, { paths: ['build/'], force: false, why: null }), [
    { path: 'paths[1]', from: '"dist/"', to: null },
    { path: 'why', from: null, to: 'null' }
  ]);
  assert.deepEqual(changesOf({ a: { b: 1 } }, { a: { b: 2 } }), [{ path: 'a.b', from: '1', to: '2' }]);
  assert.deepEqual(changesOf({ a: [1] }, { a: { 0: 1 } }), [{ path: 'a', from: '[1]', to: '{"0":1}' }]);
  assert.deepEqual(changesOf(JSON.parse('{"__proto__": 1}'), {}), [{ path: '__proto__', from: '1', to: null }]);
});

test('nothing is approved while the editor holds what cannot be run', () => {
  const call = callOf(aCall(PATHS));
  assert.ok(call);
  const names = (shown: Parameters<typeof callButtons>[0]): string => callButtons(shown).map(each => `${each.label}${each.why ? '!' : ''}`).join(' ');
  assert.equal(names({ call, edited: null, reason: null, why: '' }), 'Approve Edit… Deny…');
  assert.equal(names({ call, edited: judged('{', {}), reason: null, why: '' }), 'Approve! Leave as it was Deny…');
  assert.equal(names({ call, edited: judged('{"paths":[]}', PATHS.arguments), reason: null, why: '' }), 'Approve with changes Leave as it was Deny…');
  assert.equal(names({ call, edited: null, reason: '', why: '' }), 'Deny Back');
  assert.equal(names({ call, edited: null, reason: null, why: 'read it first' }), 'Approve! Edit…! Deny…!');
});

test('edited arguments, a reason and "always" go with the answer, and nothing empty does', () => {
  const deed = { kind: 'answer', approval_id: 'a1', answer: 'approved', digest: 'd1', choice: null } as const;
  assert.deepEqual(bodyOf(aCard(), { ...deed, arguments: { paths: [] }, always: true }).args, {
    approval_id: 'a1',
    answer: 'approved',
    digest: 'd1',
    arguments: { paths: [] },
    always: true
  });
  assert.deepEqual(bodyOf(aCard(), { ...deed, answer: 'denied', reason: '' }).args, { approval_id: 'a1', answer: 'denied', digest: 'd1' });
});

test('a tool call shows its effect and who is allowed what, and hostile arguments are text', () => {
  const markup = render(<AskView ask={aCall(PATHS)} doing={new Set()} act={() => undefined} load={never} />);
  assert.match(markup, /irreversible/);
  assert.match(markup, /always allow delete_files in this session/);
  const evil = aCall({ tool: HOSTILE, effect: HOSTILE, arguments: { [HOSTILE]: HOSTILE } }, { question: HOSTILE });
  const edited = judged(JSON.stringify({ [HOSTILE]: 1 }), { [HOSTILE]: HOSTILE });
  const both =
    render(<AskView ask={evil} doing={new Set()} act={() => undefined} load={never} />) +
    render(<Editor tool={HOSTILE} text="{}" edited={edited} setText={() => undefined} leave={() => undefined} />);
  assert.ok(!/<script|<img|onerror="/i.test(both), both);
  assert.ok(!both.replace(/<[^>]*>/g, '').includes('\u202e'));
});
