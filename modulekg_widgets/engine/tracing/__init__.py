"""What a forward pass does: the operators that it calls, the values between them, and their cost."""
