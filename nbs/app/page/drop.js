// A field for one file: what is too large is not even read.
function render({ model, el }) {
  el.innerHTML = '<label class="mfdl-drop" tabindex="0">drop an edge list, or click here<input type="file" hidden></label>';
  const label = el.firstChild;
  const input = label.lastChild;

  const take = async file => {
    if (file) {
      const parts = file.size > model.get("limit") ? [] : [await file.arrayBuffer()];
      model.send({ name: file.name, size: file.size }, undefined, parts);
    }
    input.value = "";
  };

  input.onchange = () => take(input.files[0]);
  label.onkeydown = event => { if (event.key === "Enter") input.click(); };
  label.ondragover = event => event.preventDefault();
  label.ondrop = event => {
    event.preventDefault();
    take(event.dataTransfer.files[0]);
  };
}

export default { render };
