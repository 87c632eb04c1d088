export { MODULE, VERSION } from "../generated/version";
