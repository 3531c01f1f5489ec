/** The states as a person sees them: a word, a shape that reads without colour, a tone, and what is said aloud. */
import type { JSX } from 'preact';

import type { Card, Shown } from '../wire.js';

export type Tone = 'active' | 'wait' | 'rest' | 'good' | 'bad';

const TONES: Record<string, Tone> = {
  queued: 'rest',
  running: 'active',
  suspended: 'wait',
  interrupted: 'rest',
  completed: 'good',
  cancelled: 'rest',
  failed: 'bad',
  lost: 'bad',
  damaged: 'bad',
  empty: 'rest'
};

export const ENDED: ReadonlySet<string> = new Set(['completed', 'cancelled', 'failed']);

export function toneOf(state: string): Tone {
  return TONES[state] ?? 'rest';
}

/** Whether a pause was asked for and open activities are being waited for. */
export function isPausing(card: Card): boolean {
  return card.state === 'running' && card.pausing;
}

/** What is said when a card changes, or an empty string when there is nothing new to say. */
export function announcement(old: Shown | null, fresh: Shown): string {
  const [was, is] = [old?.card ?? null, fresh.card];
  if (was === null) {
    return '';
  }
  const asked = is.asks.find(ask => !was.asks.some(known => known.digest === ask.digest));
  if (asked !== undefined) {
    return `${is.title} needs you: ${asked.question}`;
  }
  if (was.state !== is.state || isPausing(was) !== isPausing(is)) {
    return `${is.title}: ${is.headline}`;
  }
  return '';
}

/** The shape of a state, 12 by 12, in the current colour. */
export function Glyph({ state, needsYou = false }: { state: string; needsYou?: boolean }): JSX.Element {
  const tone = needsYou ? 'wait' : toneOf(state);
  return (
    <svg class={`ipa-glyph ipa-tone-${tone}`} viewBox="0 0 12 12" width="12" height="12" aria-hidden="true">
      {needsYou ? SHAPES['asks'] : (SHAPES[state] ?? SHAPES['queued'])}
    </svg>
  );
}

const ring = <circle cx="6" cy="6" r="4" fill="none" stroke="currentColor" stroke-width="1.8" />;
const stroke = { fill: 'none', stroke: 'currentColor', 'stroke-width': 1.8, 'stroke-linecap': 'round' as const };
const warning = (
  <g>
    <path d="M6 1.4 11 10.4H1z" fill="none" stroke="currentColor" stroke-width="1.5" stroke-linejoin="round" />
    <path d="M6 4.6v2.6M6 8.7v.2" {...stroke} stroke-width={1.4} />
  </g>
);

const SHAPES: Record<string, JSX.Element> = {
  queued: <circle cx="6" cy="6" r="4" fill="none" stroke="currentColor" stroke-width="1.8" stroke-dasharray="2 1.6" />,
  empty: <circle cx="6" cy="6" r="1.8" fill="currentColor" />,
  running: <circle cx="6" cy="6" r="4.6" fill="currentColor" />,
  suspended: (
    <g>
      {ring}
      <path d="M6 3.6V6l1.6 1.2" {...stroke} stroke-width={1.3} />
    </g>
  ),
  asks: (
    <g>
      <circle cx="6" cy="6" r="5" fill="currentColor" />
      <path d="M6 3.1v3.4M6 8.6v.2" fill="none" stroke="var(--ipa-bg)" stroke-width="1.7" stroke-linecap="round" />
    </g>
  ),
  interrupted: <path d="M4 2.8v6.4M8 2.8v6.4" {...stroke} stroke-width={2} />,
  completed: <path d="M2 6.6 4.8 9.2 10 3.2" {...stroke} />,
  cancelled: (
    <g>
      {ring}
      <path d="M3.4 8.6 8.6 3.4" {...stroke} stroke-width={1.5} />
    </g>
  ),
  failed: <path d="M2.8 2.8 9.2 9.2M9.2 2.8 2.8 9.2" {...stroke} stroke-width={2} />,
  lost: warning,
  damaged: warning
};
