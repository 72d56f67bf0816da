// Scroll to the top of the page when the tour shows another step, unless its title is in view already.
//
//   mount(element, data) → { update(data), destroy() }
//   data = { step }

export function mount(element, data) {
  let { step } = data;
  return {
    update(next) {
      if (next.step === step) return;
      step = next.step;
      const title = document.querySelector(".stMain h1");
      if (title && title.getBoundingClientRect().top < 0) document.querySelector(".stMain").scrollTo({ top: 0 });
    },
    destroy() {},
  };
}
