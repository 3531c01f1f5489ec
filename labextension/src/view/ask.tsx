/**
 * A question that waits for a person.
 *
 * What is answered is what was read: the answer carries the digest of the question in this very picture, buttons take no press in
 * the first moments after a question appeared under the pointer, and a long question is answered only after it was shown whole.
 */
import type { JSX } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';

import * as text from '../text.js';
import type { Ask } from '../wire.js';
import { answersOf, callButtons, type Answer, type CallButton, type Deed } from './buttons.js';
import { callOf, judged, textOf } from './edit.js';
import { Editor } from './editor.js';
import { Press } from './press.js';

export const LONG = 1500;
const SETTLE_MS = 350;

export interface AskProps {
  ask: Ask;
  doing: ReadonlySet<string>;
  act: (deed: Deed) => void;
  /** Fetches details that are kept as a blob. */
  load: (blob: string) => Promise<string>;
}

export function AskView({ ask: asked, doing, act, load }: AskProps): JSX.Element {
  const [whole, setWhole] = useState(false);
  const [loaded, setLoaded] = useState<string | null>(null);
  const [problem, setProblem] = useState('');
  const ask = loaded === null ? asked : { ...asked, details: loaded, details_blob: null };
  const [settled, setSettled] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(true), SETTLE_MS);
    return () => clearTimeout(timer);
  }, []);
  const elsewhere = ask.details_blob ?? null;
  const cut = elsewhere !== null || (isLong(ask) && !whole);
  const waiting = doing.has(`answer ${ask.approval_id}`);
  const why = waiting ? 'your answer is under way' : cut ? 'read the rest of it first' : '';
  const asks = text.block(ask.question);
  const details = useMemo(() => text.block(reflow(ask.details)), [ask.details]);
  const inline = details.length > 0 && details.length <= 90 && !details.includes('\n');
  const length = ask.question.length + ask.details.length;
  const call = useMemo(() => callOf(ask), [ask.digest, loaded]);
  const [always, setAlways] = useState(false);
  const [typed, setTyped] = useState<string | null>(null);
  const [reason, setReason] = useState<string | null>(null);
  const edited = typed === null || call?.arguments == null ? null : judged(typed, call.arguments);
  const showAll = (): void => {
    setWhole(true);
    if (elsewhere !== null) {
      void load(elsewhere).then(setLoaded, (error: unknown) => setProblem(error instanceof Error ? error.message : String(error)));
    }
  };
  const answer = (said: Answer): void => {
    if (settled) {
      act({
        kind: 'answer',
        approval_id: ask.approval_id,
        answer: said.answer,
        digest: ask.digest,
        choice: said.choice,
        ...(said.answer === 'denied' && reason !== null && { reason: reason.trim() }),
        ...(said.answer === 'approved' && always && { always }),
        ...(said.answer === 'approved' && edited?.value != null && edited.changes.length > 0 && { arguments: edited.value })
      });
    }
  };
  return (
    <section class="ipa-ask" role="group" aria-label="needs your answer">
      <p class="ipa-ask-line">
        <span class="ipa-needs">needs you</span>
        <span class="ipa-question">{cut ? asks.slice(0, LONG) : asks}</span>
        {inline ? <code class="ipa-inline">{details}</code> : null}
        {call === null || call.effect === '' || call.effect === 'none' ? null : <span class="ipa-effect">{text.line(call.effect, 20)}</span>}
      </p>
      {details.length === 0 || inline || typed !== null ? null : (
        <pre class="ipa-details" tabIndex={0} aria-label="details">
          {cut ? `${details.slice(0, LONG)}…` : details}
        </pre>
      )}
      {cut ? (
        <Press label={elsewhere === null ? `Show all ${text.quantity(length)} characters` : 'Show all of it'} name="show-all" onPress={showAll} />
      ) : null}
      {problem === '' ? null : <p class="ipa-hint">{text.line(`the rest of it did not come: ${problem}`, 200)}</p>}
      <p class="ipa-ask-terms">
        asked {text.age(ask.since_s)}
        {ask.if_ignored ? ` · ${text.line(ask.if_ignored, 160)}` : ''}
        {ask.expires_at === null ? '' : ` · until ${text.clock(ask.expires_at)}`}
      </p>
      {typed === null || edited === null ? null : (
        <Editor tool={call?.tool ?? ''} text={typed} edited={edited} setText={setTyped} leave={() => setTyped(null)} />
      )}
      {reason === null ? null : <Reason reason={reason} setReason={setReason} deny={() => answer(DENY)} />}
      {call === null || reason !== null ? null : (
        <label class="ipa-check ipa-always">
          <input type="checkbox" checked={always} onChange={event => setAlways(event.currentTarget.checked)} />
          always allow {text.line(call.tool, 60) || 'this tool'} in this session
        </label>
      )}
      <div class="ipa-ask-answers">
        {call !== null
          ? callButtons({ call, edited, reason, why }).map(each => (
              <Press
                key={each.name}
                name={each.name}
                label={each.label}
                why={each.why}
                primary={each.primary}
                onPress={() => {
                  const deeds: Record<CallButton['name'], () => void> = {
                    approved: () => answer(APPROVE),
                    denied: () => answer(DENY),
                    edit: () => setTyped(textOf(call.arguments ?? {})),
                    'edit-back': () => setTyped(null),
                    deny: () => setReason(''),
                    'deny-back': () => setReason(null)
                  };
                  deeds[each.name]();
                }}
              />
            ))
          : answersOf(ask.choices, ask.kind).map(each => (
              <Press
                key={`${each.answer} ${each.choice ?? ''}`}
                name={each.answer}
                label={text.line(each.label, 60)}
                primary={each.primary}
                why={why}
                onPress={() => answer(each)}
              />
            ))}
      </div>
    </section>
  );
}

const APPROVE: Answer = { label: 'Approve', answer: 'approved', choice: null, primary: true };
const DENY: Answer = { label: 'Deny', answer: 'denied', choice: null, primary: false };

function Reason({ reason, setReason, deny }: { reason: string; setReason: (reason: string) => void; deny: () => void }): JSX.Element {
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []);
  return (
    <input
      ref={field}
      class="ipa-input ipa-reason"
      maxLength={1000}
      placeholder="Why not? The agent reads it (may be empty)"
      aria-label="reason"
      value={reason}
      data-lm-suppress-shortcuts="true"
      onInput={event => setReason(event.currentTarget.value)}
      onKeyDown={event => {
        if (event.key === 'Enter') {
          event.preventDefault();
          deny();
        }
      }}
    />
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
