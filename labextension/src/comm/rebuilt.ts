/** Rendered Markdown built again, element by element, of the few kinds that Markdown has: nothing else gets into the page. */
import { coloured } from './colours.js';

const KEPT = new Set(
  ['a', 'blockquote', 'br', 'code', 'del', 'div', 'em', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'hr', 'li', 'ol', 'p', 'pre', 's', 'strong'].concat(
    ['table', 'tbody', 'td', 'th', 'thead', 'tr', 'ul']
  )
);

/** Whether an address may be followed: a page of the web, and nothing that does something. */
export const isWeb = (address: string): boolean => /^https?:\/\/[^\s]+$/i.test(address);

/** The nodes of `html` as new ones of `page`. Reading it runs and fetches nothing: what DOMParser makes is inert. */
export function rebuilt(html: string, page: Document): Node[] {
  return copies(new DOMParser().parseFromString(html, 'text/html').body, page);
}

function copies(parent: Node, page: Document): Node[] {
  return [...parent.childNodes].flatMap((node): Node[] => {
    if (!(node instanceof Element)) {
      return node.nodeType === Node.TEXT_NODE ? [page.createTextNode(node.textContent ?? '')] : [];
    }
    const name = node.localName;
    if (!KEPT.has(name)) {
      return [page.createTextNode(node.textContent ?? '')];
    }
    const made = page.createElement(name);
    const address = node.getAttribute('href') ?? '';
    if (made instanceof HTMLAnchorElement && isWeb(address)) {
      made.href = address;
      made.target = '_blank';
      made.rel = 'noopener noreferrer';
    }
    const language = name === 'code' ? /\blanguage-([\w-]+)/.exec(node.className)?.[1] : undefined;
    made.append(...(language === undefined ? copies(node, page) : inColours(node.textContent ?? '', language, page)));
    return [made];
  });
}

function inColours(code: string, language: string, page: Document): Node[] {
  return coloured(code, language).map(({ text, classes }) => {
    if (classes === '') {
      return page.createTextNode(text);
    }
    const made = page.createElement('span');
    made.className = classes;
    made.textContent = text;
    return made;
  });
}
