import assert from 'node:assert/strict';
import { test } from 'node:test';

import * as text from '../src/text.js';

test('durations show their two largest units', () => {
  assert.deepEqual(
    [null, 0.2, 3.14, 59.6, 512, 8 * 3600 + 32 * 60, 3 * 86400 + 7200].map(text.duration),
    ['unknown', '200 ms', '3.1 s', '1 min 0 s', '8 min 32 s', '8 h 32 min', '3 d 2 h']
  );
});

test('a ticking duration has whole seconds only', () => {
  assert.deepEqual([0, 3.9, 61, 86_399].map(text.clockDuration), ['0 s', '3 s', '1 min 1 s', '23 h 59 min']);
});

test('sizes and quantities keep one digit and share a unit', () => {
  assert.equal(text.sizeOf(1.2e9, 6.8e9), '1.2 of 6.8 GB');
  assert.equal(text.sizeOf(6.1e7, 2.53e10), '61.0 MB of 25.3 GB');
  assert.deepEqual([7, 18_200, 999_949, 3.1e6].map(text.quantity), ['7', '18.2 k', '999.9 k', '3.1 M']);
  assert.deepEqual([0, 0.31, 0.0042].map(text.money), ['$0.00', '$0.31', '$0.0042']);
});

test('100 percent means done and nothing less', () => {
  assert.equal(text.percent(999, 1000), 99);
  assert.equal(text.percent(1000, 1000), 100);
  assert.equal(text.percent(3, null), null);
  assert.equal(text.percent(0, 0), null);
});

test('controls, terminal escapes and bidirectional overrides become visible', () => {
  assert.equal(text.line('a\u001b[31mb\u202ec\nd\u0000'), 'a\\x1b[31mb\\u202ec\\nd\\x00');
  assert.equal(text.block('a\r\nb\tc\u2066d'), 'a\nb\tc\\u2066d');
  assert.equal(text.line('\ud800'), '\\ud800');
  assert.equal(text.line('👩‍🔬 ok'), '👩‍🔬 ok');
});

test('a line of a megabyte is cut before anything else is done with it', () => {
  assert.equal(text.line('x'.repeat(1_000_000), 80).length, 80);
});

test('the tail of a text begins at a line where one is near', () => {
  assert.equal(text.tail('one\ntwo\nthree\nfour five six', 20), 'three\nfour five six');
  assert.equal(text.tail('abcdef', 3), 'def');
});
