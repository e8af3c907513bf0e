// What only a browser can do: show an address, keep files, and say what it is like.
function render({ model, el }) {
  el.innerHTML = '<div class="mfdl-keep">' +
    '<button data-keep="picture">picture (PNG)</button>' +
    '<button data-keep="table">table (CSV)</button>' +
    '<button data-keep="link">copy link</button></div>';
  const button = name => el.querySelector(`[data-keep=${name}]`);

  const keep = (name, bytes) => {
    const anchor = document.createElement("a");
    anchor.href = URL.createObjectURL(new Blob([bytes], { type: "text/csv" }));
    anchor.download = name;
    anchor.click();
    setTimeout(() => URL.revokeObjectURL(anchor.href), 60000);
  };
  model.on("msg:custom", (message, parts) => keep(message.name, parts[0]));
  button("table").onclick = () => model.send({ asks: "table" });

  const camera = () => document.querySelector('.mfdl .modebar-btn[data-title^="Download"]');
  button("picture").onclick = () => camera().click();

  const address = () => {
    const here = new URL(location);
    if (model.get("query")) here.search = model.get("query");
    here.searchParams.delete("token");
    return here.href;
  };
  button("link").onclick = event => {
    navigator.clipboard.writeText(address());
    event.target.innerText = "copied";
    setTimeout(() => { event.target.innerText = "copy link"; }, 1500);
  };

  // Alone on its page, and not one of the outputs of a notebook.
  if (!model.get("alone")) {
    button("link").remove();
    return;
  }
  const show = () => history.replaceState(null, "", address());
  model.on("change:query", show);
  show();

  const dark = matchMedia("(prefers-color-scheme: dark)");
  const touch = matchMedia("(pointer: coarse)");
  const tell = () => {
    model.set({ dark: dark.matches, touch: touch.matches });
    model.save_changes();
  };
  dark.addEventListener("change", tell);
  touch.addEventListener("change", tell);
  tell();
}

export default { render };
