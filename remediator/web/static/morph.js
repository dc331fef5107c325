// Updates an element to match a newer one, changing only what differs: focus, scroll position and open details stay.
const KEPT = new Set(["DETAILS:open", "DIALOG:open"]);

export function morph(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || (old.id ?? "") !== (fresh.id ?? "")) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    old.nodeValue = fresh.nodeValue;
    return;
  }
  if (old.dataset.own !== undefined) return; // a script draws in it
  if (old.contains(document.activeElement) && old.matches("form")) return; // the user is typing
  attributes(old, fresh);
  children(old, fresh);
}

function attributes(old, fresh) {
  for (const { name, value } of [...fresh.attributes]) {
    if (old.getAttribute(name) !== value && !KEPT.has(`${old.nodeName}:${name}`)) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !KEPT.has(`${old.nodeName}:${name}`)) old.removeAttribute(name);
  }
}

function children(old, fresh) {
  const wanted = [...fresh.childNodes];
  const there = [...old.childNodes];
  wanted.forEach((node, place) => {
    if (place < there.length) morph(there[place], node);
    else old.append(node);
  });
  for (const node of there.slice(wanted.length)) node.remove();
}
