// Roles that the list of pages in Streamlit's sidebar lacks: its sections are items, and the links in them are not.
function mend() {
  for (const section of document.querySelectorAll("[data-testid=stSidebarNavItems] > div")) {
    section.setAttribute("role", "listitem");
    for (const item of section.querySelectorAll(":scope > li")) item.setAttribute("role", "none");
  }
}

// Set the roles now and whenever the sidebar of this element changes; return a function that ends it.
export function mendSidebar(element) {
  const observer = new MutationObserver(mend), sidebar = element.closest("[data-testid=stSidebar]");
  if (sidebar) observer.observe(sidebar, { childList: true, subtree: true });
  mend();
  return () => observer.disconnect();
}
