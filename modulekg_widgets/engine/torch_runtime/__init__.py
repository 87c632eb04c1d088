"""What every part of the engine needs of torch: copies of models, random numbers, what runs, and leaving no trace."""
