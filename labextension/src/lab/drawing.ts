/** Markdown, tables and pictures of models and tools through JupyterLab's own renderers, always as untrusted. */
import { MimeModel, type IRenderMimeRegistry } from '@jupyterlab/rendermime';
import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { Widget } from '@lumino/widgets';

import type { Draw } from '../talk/pieces.js';
import { withoutRemote } from '../talk/remote.js';

export class LabDraw implements Draw {
  private readonly registry: IRenderMimeRegistry;
  private readonly drawn = new WeakMap<HTMLElement, { mime: string; renderer: IRenderMime.IRenderer }>();

  constructor(registry: IRenderMimeRegistry) {
    this.registry = registry.clone({ sanitizer: new Strict(registry.sanitizer) });
  }

  async draw(host: HTMLElement, mime: string, data: string): Promise<void> {
    let known = this.drawn.get(host);
    if (known === undefined || known.mime !== mime) {
      this.forget(host);
      known = { mime, renderer: this.registry.createRenderer(mime) };
      this.drawn.set(host, known);
      Widget.attach(known.renderer, host);
    }
    await known.renderer.renderModel(new MimeModel({ data: { [mime]: data }, trusted: false }));
  }

  forget(host: HTMLElement): void {
    this.drawn.get(host)?.renderer.dispose();
    this.drawn.delete(host);
  }
}

/** The page's sanitiser, and nothing is fetched from elsewhere: an address in an answer could carry away what the model has read. */
class Strict implements IRenderMime.ISanitizer {
  readonly allowNamedProperties = false;
  readonly allowCommandLinker = false;

  constructor(private readonly inner: IRenderMime.ISanitizer) {}

  getAutolink(): boolean {
    return this.inner.getAutolink?.() ?? true;
  }

  sanitize(dirty: string, options?: IRenderMime.ISanitizerOptions): string {
    return withoutRemote(this.inner.sanitize(dirty, options));
  }
}
