// The trajectory player, with the snapshots that are embedded in this page.
if (at("player")) AcePlayer.mount(at("player"), DATA.player);
