"""Image classifiers: ResNet, ODE-Net, RKNet, Augmented-ODE-Net and ACE-ODE-Net."""
