"""How important each index of an axis is: criteria on weights, gradients and activations."""
