"""JupyterLab in headless Chromium: opens a notebook, runs all of its cells, and says what a reader should not have seen."""
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat

SETTINGS = {
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},  # all cells are in the page, also those out of sight
    "@jupyterlab/docmanager-extension:plugin": {"autosave": False},
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
}
RUN = """async ([path, seconds]) => {
  const {commands} = jupyterapp;
  const all = async () => {
    window.panel = await commands.execute('docmanager:open', {path, factory: 'Notebook'});
    await panel.context.ready;
    await panel.sessionContext.ready;
    await commands.execute('notebook:run-all-cells');
    return [];
  };
  const late = new Promise(resolve => setTimeout(resolve, 1000 * seconds, [`has not finished after ${seconds} seconds`]));
  return Promise.race([all(), late]);
}"""
LOOK = """() => panel.content.widgets.map(({node}) => {
  const all = (what, of) => [...node.querySelectorAll(what)].map(of);
  const words = all('.jp-MarkdownOutput', page => {
    const copy = page.cloneNode(true);
    copy.querySelectorAll('code, pre, mjx-container').forEach(part => part.remove());
    return copy.textContent;
  }).join('');
  return {
    formulas: all('.jp-MarkdownOutput mjx-container', () => 1).length,
    dollars: words.split('$').length - 1,
    misread: all('mjx-merror, mjx-mtext[style*="color: red"]', part => part.getAttribute('title') ?? part.closest('mjx-container').textContent),
    pictures: all('img', image => [image.complete && image.naturalWidth > 0, image.getAttribute('src')]),
    drawn: all('.jp-OutputArea-output img, .jp-OutputArea-output svg', () => 1).length,
    links: all('.jp-MarkdownOutput a', link => link.getAttribute('href') ?? ''),
    loading: all('.jp-OutputArea-output', output => output.textContent).filter(text => text.startsWith('Loading widget')).length,
  };
})"""
CLOSE = """async () => {
  if (!window.panel) return;
  const {kernel} = panel.sessionContext.session;
  const comms = async () => (await kernel.requestCommInfo({target_name: 'jupyter.widget'})).content.comms;
  const widgets = kernel.status != 'idle' || Object.keys(await comms()).length > 0;
  await panel.sessionContext.shutdown();
  panel.dispose();
  delete window.panel;
  return widgets;
}"""


def formulas(source):
    """The formulas in the Markdown of a cell: what stands between dollars, code and escaped dollars apart."""
    prose = re.sub(r"```.*?```|`[^`]*`|\\\$", "", source, flags=re.S)
    return re.findall(r"\$\$.+?\$\$|\$[^$]+\$", prose, flags=re.S)


def wrong(cell, seen, root):
    """What is wrong with a cell: with its outputs, and with what of it is `seen` in the page."""
    if cell.cell_type == "code":
        if cell.source.strip() and cell.execution_count is None: yield "has not run"
        yield from (f"{out.ename}: {out.evalue}" for out in cell.outputs if out.output_type == "error")
        pictures = sum(any(kind.startswith("image/") for kind in out.get("data", {})) for out in cell.outputs)
        if seen["loading"]: yield "has a widget that is not shown"
        if seen["drawn"] < pictures: yield f"shows {seen['drawn']} of its {pictures} pictures"
    if cell.cell_type == "markdown":
        if seen["formulas"] != (count := len(formulas(cell.source))): yield f"shows {seen['formulas']} of its {count} formulas as mathematics"
        if seen["dollars"] != cell.source.count(r"\$"): yield "shows a dollar sign where mathematics should be"
        files = [unquote(urlsplit(link).path).removeprefix("/files/") for link in seen["links"] if urlsplit(link).path.startswith("/files/")]
        yield from (f"links to {file}, which does not exist" for file in files if not (root / file).exists())
    yield from (f"has mathematics that cannot be read: {text}" for text in seen["misread"])
    yield from (f"has a picture that cannot be seen: {source[:100]}" for loaded, source in seen["pictures"] if not loaded)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(port):
    with socket.socket() as probe: return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def serve(root):
    """A JupyterLab of the folder `root` with settings, sessions and kernels of its own: yields its address."""
    with tempfile.TemporaryDirectory(prefix="lab", ignore_cleanup_errors=True) as home:  # in a short path: it holds sockets, whose names must be short
        port, token = free_port(), secrets.token_hex()
        own = {"JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "run", "JUPYTERLAB_SETTINGS_DIR": "settings",
               "JUPYTERLAB_WORKSPACES_DIR": "workspaces", "IPYTHONDIR": "ipython"}
        env = {name: value for name, value in os.environ.items() if not name.startswith("JUPYTER")} | {name: f"{home}/{folder}" for name, folder in own.items()}
        overrides = Path(home, "config", "labconfig", "default_setting_overrides.json")
        overrides.parent.mkdir(parents=True)
        overrides.write_text(json.dumps(SETTINGS))
        options = ["--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}",
                   f"--ServerApp.root_dir={root}", "--LabApp.expose_app_in_browser=True", "--KernelManager.transport=ipc"]
        with open(Path(home, "log"), "w+") as log:
            server = subprocess.Popen([sys.executable, "-m", "jupyterlab", *options], env=env, stdout=log, stderr=log)
            try:
                until = time.monotonic() + 120
                while not answers(port):
                    if server.poll() is not None or time.monotonic() > until: raise RuntimeError(f"JupyterLab did not start:\n{Path(log.name).read_text()}")
                    time.sleep(0.1)
                yield f"http://127.0.0.1:{port}/lab?reset&token={token}"
            finally:
                server.terminate()
                server.wait()


class Lab:
    """A page with JupyterLab, which shows the folder `root`."""

    def __init__(self, browser, address, root):
        self.address, self.root, self.uncaught = address, root, []
        self.page = browser.new_page(viewport={"width": 1280, "height": 900})
        self.page.on("pageerror", lambda error: self.uncaught.append(f"uncaught in the page: {error}"))
        self.open()

    def open(self):
        self.page.goto(self.address)
        self.page.wait_for_function("window.jupyterapp")
        self.page.evaluate("jupyterapp.restored.then(() => null)")

    def run(self, path, seconds=900, patience=20):
        """Run all cells of the notebook `path` of the folder: returns the notebook with outputs, and what is wrong in it, a line for each fault.

        It gets `seconds` to run, and `patience` seconds more until formulas and pictures are shown."""
        self.uncaught.clear()
        try:
            late = self.page.evaluate(RUN, [str(path), seconds])
            notebook = nbformat.from_dict(self.page.evaluate("panel.content.model.toJSON()"))
            until = time.monotonic() + (0 if late else patience)
            while (faults := self.look(notebook)) and time.monotonic() < until: time.sleep(0.2)
            return notebook, [*(f"{path} {fault}" for fault in late), *(f"{path}, {fault}; see {self.screenshot(path, i)}" for i, fault in faults), *self.uncaught]
        finally:
            if self.page.evaluate(CLOSE):  # a widget that was still loading would complain in the next notebook
                self.open()

    def look(self, notebook):
        seen = self.page.evaluate(LOOK)
        return [(i, f"cell {i} {fault}") for i, (cell, what) in enumerate(zip(notebook.cells, seen, strict=True)) for fault in wrong(cell, what, self.root)]

    def screenshot(self, path, i):
        file = self.root / f"{Path(path).stem}-{i}.png"
        self.page.evaluate_handle("i => panel.content.widgets[i].node", i).as_element().screenshot(path=file)
        return file
