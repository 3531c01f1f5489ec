/** Two sessions side by side: where they part, how each stands, and what differs since. */
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';

import type { Api } from '../api.js';
import { block, clockDuration, line, money, quantity } from '../text.js';
import { headline } from '../view/facts.js';
import { Press } from '../view/press.js';
import { Glyph } from '../view/states.js';
import type { Card, Compared, Comparison } from '../wire.js';
import { said } from './fork.js';

export interface CompareProps {
  api: Pick<Api, 'compare'>;
  sessionId: string;
  /** The sessions to compare with. */
  others: readonly { sessionId: string; title: string }[];
  /** Compared anew when it changes. */
  seq: number;
  open: (sessionId: string) => void;
}

export function CompareView({ api, sessionId, others, seq, open }: CompareProps): JSX.Element {
  const [chosen, setChosen] = useState(others[0]?.sessionId ?? '');
  const [found, setFound] = useState<Compared | null>(null);
  const [problem, setProblem] = useState('');
  const other = others.some(each => each.sessionId === chosen) ? chosen : (others[0]?.sessionId ?? '');
  useEffect(() => {
    let alive = true;
    if (other !== '') {
      api.compare(sessionId, other).then(
        answer => alive && (setFound(answer), setProblem('')),
        (error: unknown) => alive && setProblem(said(error))
      );
    }
    return () => {
      alive = false;
    };
  }, [sessionId, other, seq]);
  return (
    <section class="ipa-compare" aria-label="side by side">
      <div class="ipa-tools">
        <label class="ipa-sort">
          beside{' '}
          <select value={other} aria-label="compare with" onChange={event => setChosen(event.currentTarget.value)}>
            {others.map(each => (
              <option key={each.sessionId} value={each.sessionId}>
                {line(each.title, 60)}
              </option>
            ))}
          </select>
        </label>
        <span class="ipa-space" />
        <Press name="compare-open" label="Open it" onPress={() => open(other)} />
      </div>
      {problem === '' ? null : <p class="ipa-stale">{line(problem, 300)}</p>}
      {found === null ? <p class="ipa-hint">comparing…</p> : <Both found={found} />}
    </section>
  );
}

function Both({ found }: { found: Compared }): JSX.Element {
  const { left, right, comparison } = found;
  return (
    <>
      <p class="ipa-form-text">{partedText(comparison)}</p>
      <table class="ipa-both">
        <thead>
          <tr>
            <th scope="col" />
            <SideHead title={left.title} card={left.card} />
            <SideHead title={right.title} card={right.card} />
          </tr>
        </thead>
        <tbody>
          {comparison.differences.map((each, at) => (
            <tr key={at}>
              <th scope="row" title={line(each.name, 200)}>
                {line(each.name, 60)}
              </th>
              <Cell text={each.left} />
              <Cell text={each.right} />
            </tr>
          ))}
        </tbody>
      </table>
      {comparison.more === 0 ? null : <p class="ipa-hint">and {comparison.more} more differences</p>}
    </>
  );
}

function SideHead({ title, card }: { title: string; card: Card }): JSX.Element {
  return (
    <th scope="col">
      <span class="ipa-side-head">
        <Glyph state={card.state} needsYou={card.asks.length > 0} />
        <span>{line(title || card.session_id, 60)}</span>
      </span>
      <span class="ipa-hint">{sideText(card)}</span>
    </th>
  );
}

function Cell({ text }: { text: string | null }): JSX.Element {
  return text === null ? <td class="ipa-absent">not there</td> : <td>{block(text)}</td>;
}

/** "completed in 2 min 3 s · 12 of 12 · 1.2 k tokens · $0.31". */
export function sideText(card: Card): string {
  const cost = card.tokens > 0 || card.cost_usd > 0 ? `${quantity(card.tokens)} tokens · ${money(card.cost_usd)}` : '';
  const done = `${card.done}${card.total === null ? ' done' : ` of ${card.total}`}`;
  return [`${headline(card).state}, ${clockDuration(card.elapsed_s)}`, done, cost].filter(part => part !== '').join(' · ');
}

export function partedText(comparison: Comparison): string {
  const { parted_at: at, differences, same, more } = comparison;
  const shared = at === null ? 'They share no history; activities are met by their names.' : `They share events 1 to ${at} and part there.`;
  const count = differences.length + more;
  const rest = `${count === 0 ? 'Nothing' : count} differs, ${same} ${same === 1 ? 'result is' : 'results are'} the same.`;
  return `${shared} ${rest}`.replace(/(\d+) differs/, (_, n: string) => `${n} ${n === '1' ? 'differs' : 'differ'}`);
}
