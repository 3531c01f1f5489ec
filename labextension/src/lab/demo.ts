/** A notebook to begin with: a task that survives its kernel, in five cells. */
import type { JupyterFrontEnd } from '@jupyterlab/application';

const INTRO = `# A task that outlives its kernel

Run the cells from the top. The third one starts a task; its card appears below it. Then try, in any order:

- **Pause** and **Resume** it from its card;
- restart the kernel in the middle, run the first two cells again and press **Resume**: what is done is not done again;
- open **Timeline**, drag over it, and press **Fork here…**;
- look at it in the sidebar, or in a terminal: \`ipyagent ls\`.`;

const WORKFLOW = `import asyncio
from ipyagent import activity, workflow

@activity(effect="none")
async def count_words(page):
    await asyncio.sleep(0.5)          # some slow work
    return len(page) * 7

@workflow
async def read_book(ctx, pages: int = 40):
    ctx.expect(pages)
    words = []
    for number in range(pages):
        words.append(await ctx.run(count_words, f"page {number}", key=number))
    if await ctx.approve("Print the sum?", details={"pages": pages}):
        return sum(words)`;

const SQL = `%%agent sql
select event_type, count(*) as events, max(timestamp) as last
from events group by 1 order by 2 desc`;

const cell = (type: 'markdown' | 'code', source: string, tags: readonly string[] = []): object => ({
  cell_type: type,
  metadata: tags.length > 0 ? { tags } : {},
  source,
  ...(type === 'code' && { execution_count: null, outputs: [] })
});

/** The notebook's content. Its set-up cells are tagged, so that a resume can run them when the notebook was closed. */
export function demoNotebook(): { cells: object[]; metadata: object; nbformat: number; nbformat_minor: number } {
  return {
    cells: [
      cell('markdown', INTRO),
      cell('code', '%load_ext ipyagent', ['agent-setup']),
      cell('code', WORKFLOW, ['agent-setup']),
      cell('code', '%agent run read_book --pages 40 --title "Read a book" --bg'),
      cell('markdown', 'Everything that happened is a table:'),
      cell('code', SQL)
    ],
    metadata: { kernelspec: { display_name: 'Python 3 (ipykernel)', language: 'python', name: 'python3' }, language_info: { name: 'python' } },
    nbformat: 4,
    nbformat_minor: 4
  };
}

/** Write the notebook into the folder `cwd` and open it. */
export async function openDemo(app: JupyterFrontEnd, cwd: string): Promise<void> {
  const { contents } = app.serviceManager;
  const made = await contents.newUntitled({ path: cwd, type: 'notebook' });
  await contents.save(made.path, { type: 'notebook', format: 'json', content: demoNotebook() });
  await app.commands.execute('docmanager:open', { path: made.path });
}
