/** A conversation as a person reads it: answers as Markdown, calls folded, and an answer that is still coming. */
import type { JSX } from 'preact';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';

import type { Api } from '../api.js';
import { isFields } from '../guards.js';
import { block, line, size, tail } from '../text.js';
import { Press } from '../view/press.js';
import { TalkFeed } from './feed.js';
import { Drawn, Marked, PieceView, TEXT_SHOWN, type Draw } from './pieces.js';
import { outcomeOf, type Called, type Elsewhere, type Picture, type Said } from './talk.js';
import { callText, costText, fateText, piecesOf, textOf } from './values.js';

export interface TalkProps {
  api: Pick<Api, 'talk' | 'blob' | 'picture'>;
  draw: Draw | null;
  sessionId: string;
  /** Only what belongs to this task; empty for the whole session. */
  task: string;
  seq: number;
  /** The end of an answer that is being streamed. */
  partial: string;
  running: boolean;
  tall: boolean;
}

const PARTIAL_SHOWN = 16_000;
const MOST_PICTURES = 8;
const LARGEST_LOAD = 1_048_576;

export function TalkView(props: TalkProps): JSX.Element | null {
  const { api, sessionId, seq, partial, running, draw } = props;
  const [version, setVersion] = useState(0);
  const feed = useMemo(() => new TalkFeed(api, sessionId, () => setVersion(count => count + 1)), [sessionId]);
  useEffect(() => void feed.upTo(seq), [feed, seq]);
  const items = useMemo(() => feed.talk.of(props.task), [feed, version, props.task]);
  const live = useRef(false); // it was seen to run: its place keeps its height from then on
  live.current ||= running;
  const [whole, setWhole] = useState(props.tall);
  const box = useRef<HTMLDivElement>(null);
  useFollowEnd(box, running);
  const [cut, setCut] = useState(false);
  useLayoutEffect(() => {
    const node = box.current;
    if (node !== null && !running && !whole) {
      setCut(node.scrollHeight > node.clientHeight + 4);
    }
  });
  if (items.length === 0 && partial === '' && !running) {
    return feed.problem === '' ? null : <p class="ipa-stale">the conversation cannot be read: {line(feed.problem, 300)}</p>;
  }
  const read = (blob: string): Promise<string> => api.picture(sessionId, blob);
  const load = (from: Elsewhere): Promise<unknown> => loaded(api, sessionId, from);
  const classes = ['ipa-talk', live.current && !whole && 'ipa-held', whole && 'ipa-whole'].filter(Boolean).join(' ');
  return (
    <section class="ipa-talk-frame" aria-label="conversation">
      <div class={classes} ref={box} tabIndex={0} role="log" aria-label="messages" aria-live="off">
        {items.map(item =>
          item.kind === 'said' ? (
            <SaidView key={item.seq} said={item} draw={draw} load={load} />
          ) : (
            <CalledView key={item.seq} call={item} draw={draw} load={load} read={read} />
          )
        )}
        {partial !== '' ? (
          <div class="ipa-said-by ipa-by-assistant ipa-streaming">
            <Marked text={tail(partial, PARTIAL_SHOWN)} draw={draw} />
          </div>
        ) : running && feed.talk.asking ? (
          <p class="ipa-thinking">waiting for the model…</p>
        ) : null}
      </div>
      {cut && !running && !props.tall ? (
        <Press name="talk-whole" label={whole ? 'Show less' : 'Show all of it'} onPress={() => setWhole(!whole)} />
      ) : null}
    </section>
  );
}

/** Stay at the end while something is added, as long as the person has not scrolled away from it. */
function useFollowEnd(box: { current: HTMLDivElement | null }, on: boolean): void {
  const atEnd = useRef(true);
  useEffect(() => {
    const node = box.current;
    if (node === null || !on) {
      return undefined;
    }
    const scrolled = (): void => {
      atEnd.current = node.scrollTop + node.clientHeight >= node.scrollHeight - 24;
    };
    const follow = new MutationObserver(() => {
      if (atEnd.current) {
        node.scrollTop = node.scrollHeight;
      }
    });
    node.addEventListener('scroll', scrolled, { passive: true });
    follow.observe(node, { childList: true, subtree: true, characterData: true });
    node.scrollTop = node.scrollHeight;
    return () => {
      node.removeEventListener('scroll', scrolled);
      follow.disconnect();
    };
  }, [on, box.current === null]);
}

async function loaded(api: Pick<Api, 'talk' | 'blob'>, sessionId: string, from: Elsewhere): Promise<unknown> {
  if (from.blob !== null) {
    const text = await api.blob(sessionId, from.blob);
    try {
      return outcomeOf(JSON.parse(text)).value;
    } catch {
      return text;
    }
  }
  const page = await api.talk(sessionId, from.seq - 1, 1, LARGEST_LOAD);
  const body = page.events[0]?.payload;
  return isFields(body) ? (outcomeOf(body['result']).value ?? body['args'] ?? body['text']) : undefined;
}

type Load = (from: Elsewhere) => Promise<unknown>;

function SaidView({ said, draw, load }: { said: Said; draw: Draw | null; load: Load }): JSX.Element {
  const cost = [said.partial ? 'cut short' : '', said.model === '' ? '' : line(said.model, 60), costText(said.cost)].filter(part => part !== '').join(' · ');
  const from = said.blob !== null || said.leftOut !== null ? { seq: said.seq, blob: said.blob, bytes: said.leftOut } : null;
  return (
    <div class={`ipa-said-by ipa-by-${said.role}`}>
      {said.role === 'user' ? <span class="ipa-who">you</span> : said.role === 'assistant' ? null : <span class="ipa-who">{said.role}</span>}
      {said.thinking === '' ? null : (
        <details class="ipa-call">
          <summary data-lm-suppress-shortcuts="true">thinking</summary>
          <pre class="ipa-value">{block(said.thinking.slice(0, TEXT_SHOWN))}</pre>
        </details>
      )}
      {from !== null ? (
        <More from={from} load={load} shown={value => <Marked text={textOf(value)} draw={draw} />} />
      ) : said.role === 'assistant' ? (
        <Marked text={said.text} draw={draw} />
      ) : (
        <div class="ipa-plain">{block(said.text.slice(0, TEXT_SHOWN))}</div>
      )}
      {cost === '' ? null : <span class="ipa-cost">{cost}</span>}
    </div>
  );
}

interface CalledProps {
  call: Called;
  draw: Draw | null;
  load: Load;
  read: (blob: string) => Promise<string>;
}

function CalledView({ call, draw, load, read }: CalledProps): JSX.Element {
  const cost = costText(call.cost);
  return (
    <>
      <details class={`ipa-call ipa-fate-${call.fate}`}>
        <summary data-lm-suppress-shortcuts="true">
          <span class="ipa-call-text">{line(call.model ? `asked ${call.name}` : callText(call.name, call.args), 160)}</span>
          <span class="ipa-call-fate">
            {fateText(call)}
            {call.effect === '' || call.effect === 'none' ? '' : ` · ${line(call.effect, 20)}`}
            {cost === '' ? '' : ` · ${cost}`}
          </span>
        </summary>
        <div class="ipa-call-body">
          <Value name="arguments" value={call.args} from={call.argsFrom} draw={draw} load={load} />
          {call.error === '' ? null : <p class="ipa-call-error">{block(call.error.slice(0, 4000))}</p>}
          <Value name="result" value={call.result} from={call.resultFrom} draw={draw} load={load} />
        </div>
      </details>
      {draw === null
        ? null
        : call.pictures.slice(0, MOST_PICTURES).map(each => <PictureView key={each.blob} picture={each} draw={draw} read={read} />)}
    </>
  );
}

/** A picture that a tool made, fetched when it is first shown. */
function PictureView({ picture, draw, read }: { picture: Picture; draw: Draw; read: (blob: string) => Promise<string> }): JSX.Element {
  const [data, setData] = useState<string | null>(null);
  useEffect(() => {
    let alive = true;
    void read(picture.blob).then(
      found => alive && setData(found),
      () => undefined
    );
    return () => {
      alive = false;
    };
  }, [picture.blob]);
  return <div class="ipa-picture">{data === null ? null : <Drawn figure={{ mime: picture.mime, data }} draw={draw} />}</div>;
}

function Value(props: { name: string; value: unknown; from: Elsewhere | null; draw: Draw | null; load: Load }): JSX.Element | null {
  const { name, value, from, draw, load } = props;
  if (from === null && (value === undefined || value === null)) {
    return null;
  }
  const shown = (what: unknown): JSX.Element => <>{piecesOf(what).map((piece, at) => <PieceView key={at} piece={piece} draw={draw} />)}</>;
  return (
    <div class="ipa-value-of">
      <span class="ipa-who">{name}</span>
      {from === null ? shown(value) : <More from={from} load={load} shown={shown} />}
    </div>
  );
}

/** What is large is fetched when somebody asks for it. */
function More({ from, load, shown }: { from: Elsewhere; load: Load; shown: (value: unknown) => JSX.Element }): JSX.Element {
  const [value, setValue] = useState<unknown>(undefined);
  const [problem, setProblem] = useState('');
  return value !== undefined ? (
    shown(value)
  ) : (
    <span>
      <Press
        name="load"
        label={`Show it${from.bytes === null ? '' : ` (${size(from.bytes)})`}`}
        onPress={() => void load(from).then(setValue, (error: unknown) => setProblem(error instanceof Error ? error.message : String(error)))}
      />
      {problem === '' ? null : <span class="ipa-hint">{line(problem, 200)}</span>}
    </span>
  );
}
