// Scroll to the top of the page when something else is shown there, unless its title is in view already.
//
//   mount(element, data) → { update(data), destroy() }
//   data = { shown }, any text or number; an empty one never scrolls

export function mount(element, data) {
  let { shown } = data;
  return {
    update(next) {
      if (next.shown === shown) return;
      shown = next.shown;
      if (!shown) return;
      const title = document.querySelector(".stMain h1");
      if (title && title.getBoundingClientRect().top < 0) document.querySelector(".stMain").scrollTo({ top: 0 });
    },
    destroy() {},
  };
}
