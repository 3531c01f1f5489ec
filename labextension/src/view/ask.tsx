/**
 * A question that waits for a person.
 *
 * What is answered is what was read: the answer carries the digest of the question in this very picture, buttons take no press in
 * the first moments after a question appeared under the pointer, and a long question is answered only after it was shown whole.
 */
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';

import * as text from '../text.js';
import type { Ask } from '../wire.js';
import { answersOf, type Deed } from './buttons.js';
import { Press } from './press.js';

export const LONG = 1500;
const SETTLE_MS = 350;

export interface AskProps {
  ask: Ask;
  doing: ReadonlySet<string>;
  act: (deed: Deed) => void;
}

export function AskView({ ask, doing, act }: AskProps): JSX.Element {
  const [whole, setWhole] = useState(false);
  const [settled, setSettled] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(true), SETTLE_MS);
    return () => clearTimeout(timer);
  }, []);
  const cut = isLong(ask) && !whole;
  const waiting = doing.has(`answer ${ask.approval_id}`);
  const why = waiting ? 'your answer is under way' : cut ? 'read the rest of it first' : '';
  const asks = text.block(ask.question);
  const details = text.block(reflow(ask.details));
  const inline = details.length > 0 && details.length <= 90 && !details.includes('\n');
  const length = ask.question.length + ask.details.length;
  return (
    <section class="ipa-ask" role="group" aria-label="needs your answer">
      <p class="ipa-ask-line">
        <span class="ipa-needs">needs you</span>
        <span class="ipa-question">{cut ? asks.slice(0, LONG) : asks}</span>
        {inline ? <code class="ipa-inline">{details}</code> : null}
      </p>
      {details.length === 0 || inline ? null : (
        <pre class="ipa-details" tabIndex={0} aria-label="details">
          {cut ? details.slice(0, LONG) : details}
        </pre>
      )}
      {cut ? (
        <Press label={`Show all ${text.quantity(length)} characters`} name="show-all" onPress={() => setWhole(true)} />
      ) : null}
      <p class="ipa-ask-terms">
        asked {text.age(ask.since_s)}
        {ask.if_ignored ? ` · ${text.line(ask.if_ignored, 160)}` : ''}
      </p>
      <div class="ipa-ask-answers">
        {answersOf(ask.choices, ask.kind).map(each => (
          <Press
            key={`${each.answer} ${each.choice ?? ''}`}
            name={each.answer}
            label={text.line(each.label, 60)}
            primary={each.primary}
            why={why}
            onPress={() => {
              if (settled) {
                act({
                  kind: 'answer',
                  approval_id: ask.approval_id,
                  answer: each.answer,
                  digest: ask.digest,
                  choice: each.choice
                });
              }
            }}
          />
        ))}
      </div>
    </section>
  );
}

export function isLong(ask: Ask): boolean {
  return ask.question.length > LONG || ask.details.length > LONG;
}

/**
 * JSON text with line breaks where objects and lists begin, when it is not short. Only white space is added: parsing it and writing
 * it anew could show something else than what the digest covers (numbers rounded, the first of two equal keys dropped).
 */
export function reflow(json: string): string {
  if (json.length <= 90 || !/^\s*[[{]/.test(json)) {
    return json;
  }
  const out: string[] = [];
  let depth = 0;
  let quoted = false;
  const feed = (): string => `\n${'  '.repeat(Math.min(depth, 40))}`;
  for (let at = 0; at < json.length; at++) {
    const character = json[at] ?? '';
    if (quoted) {
      out.push(character);
      if (character === '\\') {
        out.push(json[++at] ?? '');
      } else if (character === '"') {
        quoted = false;
      }
      continue;
    }
    const next = json[at + 1];
    const empty = (character === '{' && next === '}') || (character === '[' && next === ']');
    if (empty) {
      out.push(character, next ?? '');
      at++;
    } else if (character === '{' || character === '[') {
      depth++;
      out.push(character, feed());
    } else if (character === '}' || character === ']') {
      depth--;
      out.push(feed(), character);
    } else if (character === ',') {
      out.push(character, feed());
    } else {
      out.push(character === ':' ? ': ' : character);
      quoted = character === '"';
    }
  }
  return out.join('');
}
