/** What a conversation is drawn of: text, tables, and what the front end draws as untrusted. */
import type { JSX } from 'preact';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';

import { block, line } from '../text.js';
import type { Figure, Grid, Piece } from './values.js';

/** Draws what only a front end can, and as untrusted: Markdown, sanitised HTML, pictures. */
export interface Draw {
  /** Draw into `host`, in place of what it drew there before; resolves when it stands. */
  draw(host: HTMLElement, mime: Figure['mime'], data: string): Promise<void>;
  /** The host goes away. */
  forget(host: HTMLElement): void;
}

export const TEXT_SHOWN = 60_000;

export function PieceView({ piece, draw }: { piece: Piece; draw: Draw | null }): JSX.Element {
  if (piece.kind === 'table') {
    return <Table grid={piece.grid} />;
  }
  if (piece.kind === 'figure') {
    return draw === null ? <p class="ipa-hint">a {piece.figure.mime} that this place cannot draw</p> : <Drawn figure={piece.figure} draw={draw} />;
  }
  return <pre class="ipa-value">{block(piece.text.slice(0, TEXT_SHOWN))}</pre>;
}

function Table({ grid }: { grid: Grid }): JSX.Element {
  return (
    <div class="ipa-grid" tabIndex={0} aria-label="table">
      <table>
        <thead>
          <tr>
            {grid.columns.map((name, at) => (
              <th key={at} scope="col">
                {line(name, 60)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {grid.rows.map((row, at) => (
            <tr key={at}>
              {row.map((each, place) => (
                <td key={place}>{line(each, 120)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {grid.count > grid.rows.length ? <p class="ipa-hint">and {grid.count - grid.rows.length} more rows</p> : null}
    </div>
  );
}

export function Marked({ text, draw }: { text: string; draw: Draw | null }): JSX.Element {
  const safe = block(text.length > TEXT_SHOWN ? `${text.slice(0, TEXT_SHOWN)}\n\n…` : text);
  return draw === null ? <div class="ipa-plain">{safe}</div> : <Drawn figure={{ mime: 'text/markdown', data: safe }} draw={draw} />;
}

/** Drawn by the front end; one picture at a time, and only the newest wish is drawn next. */
export function Drawn({ figure, draw }: { figure: Figure; draw: Draw }): JSX.Element {
  const host = useRef<HTMLDivElement>(null);
  const wanted = useRef<Figure | null>(null);
  const busy = useRef(false);
  useLayoutEffect(() => {
    const node = host.current;
    wanted.current = figure;
    const next = async (): Promise<void> => {
      busy.current = true;
      for (let at = wanted.current; node !== null && at !== null && node.isConnected; ) {
        await draw.draw(node, at.mime, at.data).catch(() => undefined);
        const now: Figure | null = wanted.current;
        at = now === at ? null : now;
      }
      busy.current = false;
    };
    if (!busy.current) {
      void next();
    }
  }, [figure.mime, figure.data]);
  useEffect(
    () => () => {
      wanted.current = null;
      if (host.current !== null) {
        draw.forget(host.current);
      }
    },
    []
  );
  return <div class="ipa-drawn" ref={host} />;
}
