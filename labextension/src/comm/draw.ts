/** What a widget draws: pictures as they are, Markdown as the kernel renders it, and nothing that is HTML already. */
import type { Api } from '../api.js';
import type { Draw } from '../talk/pieces.js';
import { rebuilt } from './rebuilt.js';

/**
 * No front end's sanitiser is at hand here, so the kernel renders: its Markdown lets no HTML through (`views/markdown`), and what comes
 * is built again of a few kinds of elements. Until it has answered the text itself stands there.
 */
export class KernelDraw implements Draw {
  constructor(private readonly api: Pick<Api, 'markdown'>) {}

  async draw(host: HTMLElement, mime: string, data: string): Promise<void> {
    const { ownerDocument: page } = host;
    if (mime === 'image/png' || mime === 'image/jpeg') {
      const picture = page.createElement('img');
      picture.src = `data:${mime};base64,${data.replace(/\s/g, '')}`;
      host.replaceChildren(picture);
    } else if (mime === 'text/markdown') {
      if (host.firstChild === null) {
        host.append(plain(page, 'ipa-plain', data));
      }
      host.replaceChildren(...rebuilt(await this.api.markdown(data), page));
      host.firstElementChild?.classList.add('jp-RenderedHTMLCommon'); // Jupyter's own styles, where there are any
    } else {
      host.replaceChildren(plain(page, 'ipa-hint', `a ${mime} that a widget does not draw`));
    }
  }

  forget(host: HTMLElement): void {
    host.replaceChildren();
  }
}

function plain(page: Document, name: string, text: string): HTMLElement {
  const made = page.createElement('div');
  made.className = name;
  made.textContent = text;
  return made;
}
