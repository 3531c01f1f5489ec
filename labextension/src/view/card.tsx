/** A task as a person sees it: a function of the server's picture and of what this person has opened. */
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';

import type { Link } from '../live.js';
import * as text from '../text.js';
import type { Card, Shown } from '../wire.js';
import { AskView } from './ask.js';
import { buttonsOf, type Button, type Deed, type ResumeDoor } from './buttons.js';
import { aged, durability, facts, footFacts, headline, progress, recovery, type Fact } from './facts.js';
import { Press } from './press.js';
import { announcement, ENDED, Glyph, toneOf } from './states.js';

/** Something to tell: the outcome of what the person did. */
export interface Notice {
  text: string;
  hint: string;
  bad: boolean;
}

export interface CardProps {
  shown: Shown;
  /** Seconds since the server made the picture. */
  age: number;
  link: Link;
  /** Who answers. */
  who: string;
  doing: ReadonlySet<string>;
  door: ResumeDoor;
  notice: Notice | null;
  act: (deed: Deed) => void;
  /** Fetches what is kept as a blob. */
  load: (blob: string) => Promise<string>;
  openLog?: boolean;
  openTimeline?: boolean;
  /** Draws what is below the card when Log or Timeline is open. */
  below?: (open: { log: boolean; timeline: boolean }) => ComponentChildren;
  /** The conversation of an agent. */
  talk?: ComponentChildren;
}

const RESERVED: Record<Button['id'], string> = { pause: 'Resuming…', stop: 'Resuming…', resume: 'Resuming…', cancel: 'Ending…' };
const TEXT_SHOWN = 8000;
const HOLD_MS = 2500;
const LONGEST_TITLE = 120;

export function CardView(props: CardProps): JSX.Element {
  const { shown, doing, act } = props;
  const card = useHeld(aged(shown.card, props.age));
  const [sure, setSure] = useState(false);
  const [log, setLog] = useState(props.openLog ?? false);
  const [timeline, setTimeline] = useState(props.openTimeline ?? false);
  const said = useSaid(shown);
  const controls = useBackToCancel(sure);
  const title = text.line(card.title || card.target || 'untitled task', LONGEST_TITLE);
  const mayCancel = (card.actions['cancel'] ?? '') === '';
  const needsYou = card.asks.length > 0;
  const why = needsYou ? '' : headline(card).why; // what it waits for stands in the question
  return (
    <article class={`ipa-card ipa-is-${toneOf(card.state)}`} aria-label={`task ${title}: ${card.state}`} data-state={card.state}>
      <header class="ipa-head">
        <Glyph state={card.state} needsYou={needsYou} />
        <h3 class="ipa-title" title={title}>
          {title}
        </h3>
        <span class="ipa-id" title="task · workflow">
          {text.line(card.task_id, 60)} · {text.line((card.kind === 'agent' && card.model) || card.target, 60)}
        </span>
        <span class="ipa-buttons" role="group" aria-label="controls" ref={controls}>
          {sure && mayCancel ? (
            <Sure
              onYes={() => {
                setSure(false);
                act({ kind: 'cancel' });
              }}
              onNo={() => setSure(false)}
            />
          ) : (
            buttonsOf(card, doing, props.door).map((button, at) => (
              <Press
                key={at}
                name={button.id}
                label={button.label}
                why={button.why}
                hint={button.hint}
                primary={button.primary}
                reserve={RESERVED[button.id]}
                onPress={() => (button.id === 'cancel' ? setSure(true) : act({ kind: button.id }))}
              />
            ))
          )}
          <Press name="log" label="Log" hint="every event" pressed={log} onPress={() => setLog(!log)} />
          <Press name="timeline" label="Timeline" hint="what ran when" pressed={timeline} onPress={() => setTimeline(!timeline)} />
        </span>
      </header>
      <Bar card={card} />
      <p class="ipa-now">
        {facts(card).map(each => (
          <FactView key={each.id} fact={each} />
        ))}
      </p>
      {why === '' ? null : <p class={`ipa-headline ipa-tone-${toneOf(card.state)}`}>{why}</p>}
      {recovery(card) === '' ? null : <p class="ipa-stale">{recovery(card)}</p>}
      <Stale link={props.link} who={props.who} age={props.age} silent={shown.silent_since} state={card.state} />
      {props.notice === null ? null : (
        <p class={props.notice.bad ? 'ipa-notice ipa-bad' : 'ipa-notice'} role={props.notice.bad ? 'alert' : 'status'}>
          {text.line(props.notice.text, 400)}
          {props.notice.hint === '' ? null : <span class="ipa-hint">{text.line(props.notice.hint, 300)}</span>}
        </p>
      )}
      {card.asks.map(ask => (
        <AskView key={ask.digest + ask.approval_id} ask={ask} doing={doing} act={act} load={props.load} />
      ))}
      {card.alarms.slice(-3).map(alarm => (
        <p key={alarm} class="ipa-alarm">
          <span class="ipa-needs">alarm</span> {text.line(alarm, 300)}
        </p>
      ))}
      {props.talk}
      {timeline || log ? props.below?.({ log, timeline }) : null}
      {props.talk === undefined ? <Partial text={shown.partial} open={!ENDED.has(card.state)} /> : null}
      <footer class="ipa-foot">
        {footFacts(card).map(each => (
          <FactView key={each.id} fact={each} />
        ))}
        <span class="ipa-durability" title={durability(card)}>
          {durability(card)}
        </span>
      </footer>
      <span class="ipa-said" role="status" aria-live="polite">
        {said}
      </span>
    </article>
  );
}

/** The last thing worth saying aloud. */
function useSaid(shown: Shown): string {
  const old = useRef<Shown | null>(null);
  const [said, setSaid] = useState('');
  useEffect(() => {
    const news = announcement(old.current, shown);
    old.current = shown;
    if (news !== '') {
      setSaid(text.line(news, 300));
    }
  }, [shown]);
  return said;
}

/** Between two activities nothing runs for a moment: the last one stays where it stood, so that the line does not flicker. */
function useHeld(card: Card): Card {
  const last = useRef({ now: card.now, at: 0 });
  if (card.now.length > 0 || card.state !== 'running') {
    last.current = { now: card.now, at: Date.now() };
    return card;
  }
  return Date.now() - last.current.at < HOLD_MS ? { ...card, now: last.current.now } : card;
}

/** When the question whether one is sure goes away, the focus returns to where it came from. */
function useBackToCancel(sure: boolean): { current: HTMLSpanElement | null } {
  const group = useRef<HTMLSpanElement>(null);
  const was = useRef(false);
  useLayoutEffect(() => {
    if (was.current && !sure) {
      group.current?.querySelector<HTMLElement>('[data-ipa="cancel"]')?.focus();
    }
    was.current = sure;
  }, [sure]);
  return group;
}

function Sure({ onYes, onNo }: { onYes: () => void; onNo: () => void }): JSX.Element {
  const keep = useRef<HTMLSpanElement>(null);
  useLayoutEffect(() => keep.current?.querySelector('button')?.focus(), []);
  return (
    <span
      class="ipa-sure"
      role="group"
      aria-label="cancel for good?"
      onKeyDown={event => {
        if (event.key === 'Escape') {
          onNo();
        }
      }}
    >
      <span class="ipa-sure-text">End it for good?</span>
      <Press name="cancel-yes" label="Cancel task" danger onPress={onYes} />
      <span ref={keep}>
        <Press name="cancel-no" label="Keep it" onPress={onNo} />
      </span>
    </span>
  );
}

function Bar({ card }: { card: Card }): JSX.Element {
  const percent = progress(card);
  return (
    <div
      class={percent === null ? 'ipa-bar ipa-open-end' : 'ipa-bar'}
      role="progressbar"
      aria-label="progress"
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={percent ?? undefined}
      aria-valuetext={percent === null ? `${card.done} done, nobody knows of how many` : `${percent} %`}
    >
      <i class={`ipa-fill ipa-tone-${toneOf(card.state)}`} style={{ transform: `scaleX(${(percent ?? 0) / 100})` }} />
    </div>
  );
}

export function FactView({ fact }: { fact: Fact }): JSX.Element {
  const parts = [fact.before, fact.strong, fact.after].map((part, at) =>
    part === '' ? null : at === 1 ? <em key={at}>{part}</em> : <span key={at}>{part}</span>
  );
  return (
    <span class={`ipa-fact ipa-fact-${fact.id}`} title={fact.title || undefined}>
      {parts}
    </span>
  );
}

interface StaleProps {
  link: Link;
  who: string;
  age: number;
  silent: number | null;
  state: string;
}

/** What an old picture has to admit. */
function Stale({ link, who, age, silent, state }: StaleProps): JSX.Element | null {
  const since = silent === null ? null : Date.now() / 1000 - silent;
  if (since !== null && state === 'running') {
    return (
      <p class="ipa-stale">
        its process has not been heard of for {text.shortDuration(since)}; it may be stopped, or busy without a pause
      </p>
    );
  }
  return link === 'open' || link === 'idle' || (link === 'connecting' && age < 2) ? null : (
    <p class="ipa-stale">
      not connected to {who}; this is as of {text.clock(Date.now() - age * 1000)}, and is tried again by itself
    </p>
  );
}

function Partial({ text: partial, open }: { text: string; open: boolean }): JSX.Element | null {
  return partial === '' ? null : (
    <details class="ipa-partial" open={open}>
      <summary data-lm-suppress-shortcuts="true">answer so far</summary>
      <div class="ipa-partial-text">{text.block(text.tail(partial, TEXT_SHOWN))}</div>
    </details>
  );
}
