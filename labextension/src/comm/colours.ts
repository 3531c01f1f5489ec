/** Code in colours, as Jupyter's editors part it: the text in order, each piece with the classes of what it is. */
import { classHighlighter, highlightCode } from '@lezer/highlight';
import { parser as json } from '@lezer/json';
import { parser as python } from '@lezer/python';

export interface Coloured {
  text: string;
  /** Space-separated class names such as `tok-keyword`; empty for plain text. */
  classes: string;
}

const PARSERS = new Map([
  ['json', json],
  ['py', python],
  ['python', python]
]);

/** The pieces of `code`, which together are `code` itself: one plain piece for a language that is not known here. */
export function coloured(code: string, language: string): Coloured[] {
  const parser = PARSERS.get(language.toLowerCase());
  if (parser === undefined) {
    return [{ text: code, classes: '' }];
  }
  const pieces: Coloured[] = [];
  highlightCode(
    code,
    parser.parse(code),
    classHighlighter,
    (text, classes) => pieces.push({ text, classes }),
    () => pieces.push({ text: '\n', classes: '' })
  );
  return pieces;
}
