/** A card as short texts, aged to the moment: what stands in which place of the picture. Pure; units are spelled here and only here. */
import * as text from '../text.js';
import type { Card } from '../wire.js';
import { ENDED, isPausing } from './states.js';

/** `strong` is what counts, `weak` what explains it, before or behind. */
export interface Fact {
  id: string;
  before: string;
  strong: string;
  after: string;
  title: string;
}

const fact = (id: string, before: string, strong: string, after = '', title = ''): Fact => ({ id, before, strong, after, title });

/** The card as it is `seconds` after the server made it: what runs by the clock goes on between two pictures. */
export function aged(card: Card, seconds: number): Card {
  const dt = Math.max(0, seconds);
  const running = card.state === 'running';
  const less = (left: number | null): number | null => (left === null ? null : Math.max(0, left - dt));
  return {
    ...card,
    elapsed_s: running ? card.elapsed_s + dt : card.elapsed_s,
    remaining_s: running ? less(card.remaining_s) : card.remaining_s,
    checkpoint_age_s: card.checkpoint_age_s === null ? null : card.checkpoint_age_s + dt,
    checkpoint_next_s: running ? less(card.checkpoint_next_s) : card.checkpoint_next_s,
    asks: card.asks.map(ask => ({ ...ask, since_s: ask.since_s + dt }))
  };
}

/** Whole percent of the work that is done; null when nobody knows how much there is. */
export function progress(card: Card): number | null {
  return card.state === 'completed' ? 100 : text.percent(card.done, card.total);
}

/** The word for the state, and what it means when that is more than the word. */
export function headline(card: Card): { state: string; why: string } {
  if (isPausing(card)) {
    return { state: 'pausing', why: text.line(card.headline.replace(/^running, pausing:?\s*/, '').replace(/\b1 open activities/, '1 open activity'), 300) };
  }
  const prefix = `${card.state}: `;
  const why = card.headline.startsWith(prefix) ? card.headline.slice(prefix.length) : card.headline;
  return { state: card.state, why: why === card.state ? '' : text.line(why, 400) };
}

/** The line under the bar. */
export function facts(card: Card): Fact[] {
  const { state } = headline(card);
  const out = [fact('state', '', state, text.clockDuration(card.elapsed_s), 'time it has run')];
  const percent = progress(card);
  const of = card.total === null ? ' done' : ` of ${card.total}`;
  out.push(fact('done', '', `${card.done}${of}`, percent === null || card.total === null ? '' : `${percent} %`, 'activities'));
  if (card.failed > 0) {
    out.push(fact('failed', '', `${card.failed}`, 'failed', 'activities that failed'));
  }
  if (card.stage) {
    out.push(fact('stage', `stage ${text.line(card.stage, 20)}`, text.line(card.stage_name, 60)));
  }
  if (card.now.length > 0) {
    const [first, ...rest] = card.now;
    out.push(fact('now', 'now', text.line(first ?? '', 80), rest.length > 0 ? `and ${rest.length} more` : '', nowTitle(card)));
  } else if (card.text) {
    out.push(fact('now', '', text.line(card.text, 120)));
  }
  if (card.state === 'running' && !isPausing(card)) {
    const known = card.remaining_s !== null;
    const left = known ? text.shortDuration(Math.max(1, card.remaining_s ?? 0)) : 'unknown';
    out.push(fact('left', known ? 'about' : '', left, known ? 'left' : 'time left', text.line(card.remaining_basis, 200)));
  }
  return out;
}

const nowTitle = (card: Card): string => card.now.slice(0, 12).map(name => text.line(name, 80)).join('\n');

/** What the last recovery found, and how often there was one; empty when there was none. */
export function recovery(card: Card): string {
  const times = card.recoveries > 1 ? ` (recovered ${card.recoveries} times)` : '';
  const sentence = card.recovery || (card.recoveries > 0 ? 'recovered' : '');
  return sentence === '' ? '' : `${text.line(sentence, 240)}${times}`;
}

/** The bottom line. */
export function footFacts(card: Card): Fact[] {
  const out: Fact[] = [];
  if (card.checkpoint_age_s !== null) {
    const label = text.line(card.checkpoint_label, 40);
    const next = card.checkpoint_next_s === null ? '' : `next in ${text.shortDuration(card.checkpoint_next_s)}`;
    const after = [label, next].filter(part => part !== '').join(' · ');
    out.push(fact('checkpoint', 'checkpoint', text.age(card.checkpoint_age_s), after, `at event ${card.checkpoint_seq ?? 'unknown'}`));
  } else if (!ENDED.has(card.state)) {
    out.push(fact('checkpoint', '', '', 'no checkpoint yet'));
  }
  if (card.cpu_percent !== null) {
    out.push(fact('cpu', 'CPU', `${Math.round(card.cpu_percent)} %`, '', 'of one core'));
  }
  if (card.memory !== null) {
    const share = text.percent(card.memory, card.memory_total);
    out.push(fact('memory', 'memory', text.sizeOf(card.memory, card.memory_total), share === null ? '' : share === 0 ? 'under 1 %' : `${share} %`));
  }
  if (card.disk_used_percent !== null && card.state === 'running') {
    out.push(fact('disk', 'disk', `${Math.round(card.disk_used_percent)} %`, '', 'used, where the store is'));
  }
  if (card.tokens > 0 || card.cost_usd > 0) {
    const unpriced = card.unpriced > 0 ? `${card.unpriced} requests whose price is not known are not in it` : '';
    const cost = unpriced && card.cost_usd === 0 ? 'cost unknown' : `${unpriced && 'at least '}${text.money(card.cost_usd)}`;
    out.push(fact('cost', '', text.quantity(card.tokens), `tokens · ${cost}`, unpriced));
  }
  return out;
}

/** "sync · every event is on disk before the next step". */
export function durability(card: Card): string {
  return [card.durability, card.risk].filter(part => part !== '').map(part => text.line(part, 120)).join(' · ');
}
