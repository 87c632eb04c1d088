"""What is known of the operators of torch and of users: signatures, arguments, traits and cost."""
